// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"bytes"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/logs"
)

// The limits the API documents for terminationMessagePath and
// terminationMessagePolicy.
const (
	maxMessageBytes    = 4096
	maxMessageLogBytes = 2048
	maxMessageLogLines = 80
)

// logEnd is how much of a log's end is read: a line that the runtime did not split (at
// 16 KiB, CRI's logging format) and more.
const logEnd = 20 << 10

// terminationMessage returns an exited container's message: the content of the file at
// terminationMessagePath or, if that is empty, the container failed and its policy is
// FallbackToLogsOnError, the end of its log.
func terminationMessage(c *Container) string {
	if message := tail(c.MessageFile, maxMessageBytes); len(message) > 0 {
		return string(message)
	}
	if c.TerminationPolicy != string(v1.TerminationMessageFallbackToLogsOnError) || c.ExitCode == 0 {
		return ""
	}
	return logTail(tail(c.LogPath, logEnd))
}

// logTail returns the text of a log's last lines, within the limits. It skips a line whose beginning
// was cut off.
func logTail(log []byte) string {
	lines := bytes.SplitAfter(log, []byte("\n"))
	lines = lines[max(0, len(lines)-maxMessageLogLines-1):]
	var text []byte
	for _, raw := range lines {
		if line, err := logs.ParseLine(raw); err == nil {
			text = append(text, line.Text...)
		}
	}
	return string(text[max(0, len(text)-maxMessageLogBytes):])
}

// tail returns at most the last n bytes of a file, or nil if it cannot be read.
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
