// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logs reads and rotates the log files that the container runtime writes.
//
// The runtime appends one line for each line of output, in the format of CRI:
//
//	2016-10-06T00:17:09.669794202Z stdout F the text
//
// with tag P instead of F if the text continues in the next line of that stream. A file that is too
// large is renamed (0.log becomes 0.log.20161006-001709), the runtime reopens 0.log, and old files
// are compressed and finally deleted. A reader that follows a log reads its open file to the end
// before it opens the next.
package logs

import (
	"bytes"
	"fmt"
	"time"
)

// Stream is the output stream of a line.
type Stream string

// The two streams of a process.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Line is one line of a log file.
type Line struct {
	Time    time.Time
	Stream  Stream
	Partial bool   // the text continues in the stream's next line
	Text    []byte // with its newline unless Partial
}

// ParseLine parses one line of a log file, with or without its newline. Text shares raw's memory.
func ParseLine(raw []byte) (Line, error) {
	stamp, rest, ok1 := bytes.Cut(raw, []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tags, text, ok3 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || !ok3 {
		return Line{}, fmt.Errorf("log line has fewer than four fields: %q", raw)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Line{}, fmt.Errorf("log line has no timestamp: %w", err)
	}
	line := Line{Time: at, Stream: Stream(stream), Text: text}
	if line.Stream != Stdout && line.Stream != Stderr {
		return Line{}, fmt.Errorf("log line is of unknown stream %q", stream)
	}
	// Tags are separated by colons. Only the first is defined.
	first, _, _ := bytes.Cut(tags, []byte(":"))
	switch string(first) {
	case "F":
	case "P":
		line.Partial = true
		line.Text = bytes.TrimSuffix(text, []byte("\n"))
	default:
		return Line{}, fmt.Errorf("log line has unknown tag %q", first)
	}
	return line, nil
}
