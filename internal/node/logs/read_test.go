// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

func TestParseLine(t *testing.T) {
	at := time.Date(2016, 10, 6, 0, 17, 9, 669794202, time.UTC)
	for _, tc := range []struct {
		raw, stream, text string
		partial           bool
	}{
		{raw: "2016-10-06T00:17:09.669794202Z stdout F the text\n", stream: "stdout", text: "the text\n"},
		{raw: "2016-10-06T00:17:09.669794202Z stderr F \n", stream: "stderr", text: "\n"},
		{raw: "2016-10-06T00:17:09.669794202Z stdout P half\n", stream: "stdout", text: "half", partial: true},
		{raw: "2016-10-06T00:17:09.669794202Z stdout F:X:Y tagged\n", stream: "stdout", text: "tagged\n"},
		{raw: "2016-10-06T02:17:09.669794202+02:00 stdout F no newline", stream: "stdout", text: "no newline"},
		{raw: "2016-10-06T00:17:09.669794202Z stdout F  two  blanks \n", stream: "stdout", text: " two  blanks \n"},
	} {
		line, err := ParseLine([]byte(tc.raw))
		if err != nil || !line.Time.Equal(at) || string(line.Stream) != tc.stream || string(line.Text) != tc.text || line.Partial != tc.partial {
			t.Errorf("%q: got %+v, %v", tc.raw, line, err)
		}
	}
	for _, raw := range []string{
		"", "\n", "2016-10-06T00:17:09.669794202Z", "2016-10-06T00:17:09.669794202Z stdout F\n",
		"yesterday stdout F x\n", "2016-10-06T00:17:09.669794202Z stdin F x\n", "2016-10-06T00:17:09.669794202Z stdout X x\n",
	} {
		if line, err := ParseLine([]byte(raw)); err == nil {
			t.Errorf("%q was parsed as %+v", raw, line)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte("2016-10-06T00:17:09.669794202Z stdout F the text\n"))
	f.Add([]byte("2016-10-06T00:17:09Z stderr P:x half"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		line, err := ParseLine(raw)
		if err != nil {
			return
		}
		if line.Stream != Stdout && line.Stream != Stderr {
			t.Errorf("stream %q", line.Stream)
		}
		if !bytes.HasSuffix(raw, line.Text) && !bytes.HasSuffix(bytes.TrimSuffix(raw, []byte("\n")), line.Text) {
			t.Errorf("text %q is not the end of %q", line.Text, raw)
		}
	})
}

// entry is what the runtime writes for one line of output in second n.
func entry(n int, stream, tag, text string) string {
	at := time.Date(2030, 1, 1, 0, 0, n, 5, time.UTC)
	return at.Format(time.RFC3339Nano) + " " + stream + " " + tag + " " + text + "\n"
}

func stamp(n int) string { return fmt.Sprintf("2030-01-01T00:00:%02d.000000005Z ", n) }

func logFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	const all = -1
	three := entry(1, "stdout", "F", "one") + entry(2, "stderr", "F", "two") + entry(3, "stdout", "F", "three")
	long := entry(1, "stdout", "P", "a") + entry(2, "stderr", "F", "!") + entry(3, "stdout", "P", "b") + entry(4, "stdout", "F", "c")
	for _, tc := range []struct {
		name    string
		content string
		options Options
		streams string
		want    string
	}{
		{name: "all", content: three, options: Options{Tail: all, Limit: all}, want: "one\ntwo\nthree\n"},
		{name: "one stream", content: three, options: Options{Tail: all, Limit: all}, streams: "stderr", want: "two\n"},
		{name: "tail", content: three, options: Options{Tail: 2, Limit: all}, want: "two\nthree\n"},
		{name: "tail longer than the log", content: three, options: Options{Tail: 9, Limit: all}, want: "one\ntwo\nthree\n"},
		{name: "tail of nothing", content: three, options: Options{Tail: 0, Limit: all}},
		{name: "since", content: three, options: Options{Tail: all, Limit: all, Since: time.Date(2030, 1, 1, 0, 0, 2, 0, time.UTC)}, want: "two\nthree\n"},
		{name: "limit", content: three, options: Options{Tail: all, Limit: 6}, want: "one\ntw"},
		{name: "limit counts timestamps", content: three, options: Options{Tail: all, Limit: 10, Timestamps: true}, want: "2030-01-01"},
		{name: "timestamps", content: three, options: Options{Tail: 1, Limit: all, Timestamps: true}, want: stamp(3) + "three\n"},
		{name: "long line", content: long, options: Options{Tail: all, Limit: all}, streams: "stdout", want: "abc\n"},
		{name: "long line has one timestamp", content: long, options: Options{Tail: all, Limit: all, Timestamps: true}, streams: "stdout", want: stamp(1) + "abc\n"},
		{name: "unfinished last line", content: entry(1, "stdout", "F", "one") + strings.TrimSuffix(entry(2, "stdout", "F", "tw"), "\n"),
			options: Options{Tail: 1, Limit: all}, want: "tw"},
		{name: "garbage in between", content: entry(1, "stdout", "F", "one") + "\x00\x00garbage\n" + entry(2, "stdout", "F", "two"),
			options: Options{Tail: all, Limit: all}, want: "one\ntwo\n"},
		{name: "empty", options: Options{Tail: 5, Limit: all}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			var stdout, stderr = &out, &out
			var err error
			switch tc.streams {
			case "stdout":
				err = Read(context.Background(), logFile(t, tc.content), tc.options, stdout, nil)
			case "stderr":
				err = Read(context.Background(), logFile(t, tc.content), tc.options, nil, stderr)
			default:
				err = Read(context.Background(), logFile(t, tc.content), tc.options, stdout, stderr)
			}
			if err != nil || out.String() != tc.want {
				t.Errorf("got %q, %v; want %q", out.String(), err, tc.want)
			}
		})
	}
}

func TestReadMissingFile(t *testing.T) {
	if err := Read(context.Background(), "/none/0.log", Options{Tail: -1, Limit: -1}, &bytes.Buffer{}, nil); err == nil {
		t.Error("no error")
	}
}

// tailStart finds the last lines of a file, for lines of any length.
func TestTailStart(t *testing.T) {
	var content bytes.Buffer
	var lines []string
	for i := range 400 {
		line := strings.Repeat("x", (i*i*37)%997) + "\n"
		lines = append(lines, line)
		content.WriteString(line)
	}
	for n := int64(1); n <= 410; n++ {
		start, err := tailStart(bytes.NewReader(content.Bytes()), n)
		want := strings.Join(lines[max(0, len(lines)-int(n)):], "")
		if got := content.String()[start:]; err != nil || got != want {
			t.Fatalf("tail %d: %d bytes, %v; want %d", n, len(got), err, len(want))
		}
	}
}

// output collects what a follower writes.
type output struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.data.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.data.String()
}

func (o *output) await(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if o.String() == want {
			return
		}
	}
	t.Fatalf("got %q, want %q", o.String(), want)
}

type follower struct {
	output
	path    string
	running atomic.Bool
	done    chan error
	cancel  context.CancelFunc
}

func follow(t *testing.T, content string) *follower {
	t.Helper()
	f := &follower{path: logFile(t, content), done: make(chan error, 1)}
	f.running.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	f.cancel = cancel
	options := Options{Tail: -1, Limit: -1, Follow: true, Running: f.running.Load, Clock: clock.RealClock{}}
	go func() { f.done <- Read(ctx, f.path, options, f, f) }()
	return f
}

func (f *follower) append(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func (f *follower) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-f.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the follower did not end")
	}
}

func TestFollow(t *testing.T) {
	f := follow(t, entry(1, "stdout", "F", "one"))
	f.await(t, "one\n")
	f.append(t, f.path, entry(2, "stdout", "F", "two"))
	f.await(t, "one\ntwo\n")

	// An incomplete line is returned when its rest is written.
	whole := entry(3, "stdout", "F", "three")
	f.append(t, f.path, whole[:len(whole)-3])
	f.append(t, f.path, whole[len(whole)-3:])
	f.await(t, "one\ntwo\nthree\n")

	// A line that is written just before the end is not lost.
	f.append(t, f.path, entry(4, "stdout", "F", "four"))
	f.running.Store(false)
	f.ends(t)
	f.await(t, "one\ntwo\nthree\nfour\n")
}

func TestFollowSurvivesRotation(t *testing.T) {
	f := follow(t, entry(1, "stdout", "F", "one"))
	f.await(t, "one\n")
	want := "one\n"
	for i := range 5 {
		aside := fmt.Sprintf("%s.%d", f.path, i)
		if err := os.Rename(f.path, aside); err != nil {
			t.Fatal(err)
		}
		// The runtime writes to the old file until it has reopened its log.
		f.append(t, aside, entry(2, "stdout", "F", fmt.Sprintf("old %d", i)))
		f.append(t, f.path, entry(3, "stdout", "F", fmt.Sprintf("new %d", i)))
		want += fmt.Sprintf("old %d\nnew %d\n", i, i)
		f.await(t, want)
	}
	f.cancel()
	f.ends(t)
}

func TestFollowEndsWithItsClient(t *testing.T) {
	f := follow(t, "")
	f.cancel()
	f.ends(t)
}
