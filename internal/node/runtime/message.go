// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"bytes"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
)

// The limits the API documents for terminationMessagePath and
// terminationMessagePolicy.
const (
	maxMessageBytes    = 4096
	maxMessageLogBytes = 2048
	maxMessageLogLines = 80
)

// terminationMessage reads what an exited container left as its message: the file
// at terminationMessagePath or, if that is empty, the container failed and its policy
// is FallbackToLogsOnError, the end of its log.
func terminationMessage(c *Container) string {
	if message := tail(c.MessageFile, maxMessageBytes); len(message) > 0 {
		return string(message)
	}
	if c.TerminationPolicy != string(v1.TerminationMessageFallbackToLogsOnError) || c.ExitCode == 0 {
		return ""
	}
	return logTail(tail(c.LogPath, 4*maxMessageLogBytes))
}

// logTail strips the CRI log format (time, stream, tag, text) and keeps the last
// lines within the limits.
func logTail(log []byte) string {
	lines := bytes.SplitAfter(log, []byte("\n"))
	lines = lines[max(0, len(lines)-maxMessageLogLines-1):]
	var text []byte
	for _, line := range lines {
		fields := bytes.SplitN(line, []byte(" "), 4)
		if len(fields) == 4 {
			text = append(text, fields[3]...)
		}
	}
	return string(text[max(0, len(text)-maxMessageLogBytes):])
}

// tail returns at most the last n bytes of a file, nothing if it cannot be read.
func tail(path string, n int64) []byte {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > n {
		if _, err := file.Seek(-n, io.SeekEnd); err != nil {
			return nil
		}
	}
	data, err := io.ReadAll(io.LimitReader(file, n))
	if err != nil {
		return nil
	}
	return data
}
