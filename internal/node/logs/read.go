// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options select the lines of a log.
type Options struct {
	// Tail is the number of lines to read, counted from the end; negative for all.
	Tail int64
	// Since omits earlier lines.
	Since time.Time
	// Limit is the maximum number of bytes; negative for no limit.
	Limit int64
	// Timestamps prefixes each line with its time.
	Timestamps bool
	// Follow continues until Running reports that the container has exited, or ctx ends.
	Follow  bool
	Running func() bool
	Clock   clock.WithTicker
	// Flush is called, if set, whenever a follower has to wait.
	Flush func() error
}

// stampFormat always has nine digits, so that columns line up and lines sort by time.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// checkPeriod is the interval at which a follower checks whether the container runs while its log does not
// change.
const checkPeriod = time.Second

// errLimit stops reading at Options.Limit.
var errLimit = errors.New("limit reached")

// Read writes the log at path to stdout and stderr, one of which may be nil. It returns nil at the end
// of the log or, while it follows, when ctx ends.
func Read(ctx context.Context, path string, options Options, stdout, stderr io.Writer) error {
	r := &reader{
		path: filepath.Clean(path), options: options, remaining: options.Limit,
		out: map[Stream]io.Writer{}, midLine: map[Stream]bool{},
	}
	if stdout != nil {
		r.out[Stdout] = stdout
	}
	if stderr != nil {
		r.out[Stderr] = stderr
	}
	defer r.close()
	err := r.read(ctx)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

type reader struct {
	path    string
	options Options
	out     map[Stream]io.Writer
	midLine map[Stream]bool // the stream's last line was partial

	remaining int64
	file      *os.File
	buffered  *bufio.Reader
	partial   []byte // a line that the runtime has not finished
	changes   *fsnotify.Watcher
}

func (r *reader) read(ctx context.Context) error {
	if err := r.open(); err != nil {
		return err
	}
	if err := r.seek(); err != nil {
		return err
	}
	if r.options.Follow {
		r.watch(ctx)
	}
	for ctx.Err() == nil {
		if err := r.drain(ctx); err != nil {
			return err
		}
		if !r.options.Follow {
			return r.emit(ctx, r.partial)
		}
		more, err := r.more(ctx)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// more waits until there may be more to read. If the file was rotated or the container has exited, it
// first reads the file to the end again, because the runtime may have written to it since the last
// read.
func (r *reader) more(ctx context.Context) (bool, error) {
	if r.rotated() {
		if err := r.drain(ctx); err != nil {
			return false, err
		}
		if err := r.emit(ctx, r.partial); err != nil {
			return false, err
		}
		r.partial = nil
		return true, r.open()
	}
	if !r.options.Running() {
		if err := r.drain(ctx); err != nil {
			return false, err
		}
		return false, r.emit(ctx, r.partial)
	}
	return r.wait(ctx)
}

// wait waits until the log file changes, at most checkPeriod.
func (r *reader) wait(ctx context.Context) (bool, error) {
	if r.options.Flush != nil {
		if err := r.options.Flush(); err != nil {
			return false, err
		}
	}
	timer := r.options.Clock.NewTimer(checkPeriod)
	defer timer.Stop()
	var events <-chan fsnotify.Event
	var failures <-chan error
	if r.changes != nil {
		events, failures = r.changes.Events, r.changes.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-timer.C():
			return true, nil
		case err := <-failures:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				return true, nil
			}
			return false, fmt.Errorf("watch of log directory failed: %w", err)
		case event := <-events:
			// Ignore the rotated files in the same directory.
			if event.Name == r.path {
				return true, nil
			}
		}
	}
}

// drain writes all complete lines.
func (r *reader) drain(ctx context.Context) error {
	for {
		piece, err := r.buffered.ReadBytes('\n')
		r.partial = append(r.partial, piece...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("failed to read log file %q: %w", r.path, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		line := r.partial
		r.partial = nil
		if err := r.emit(ctx, line); err != nil {
			return err
		}
	}
}

// emit writes one line if the options select it.
func (r *reader) emit(ctx context.Context, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	line, err := ParseLine(raw)
	if err != nil {
		// A machine crash can leave garbage in a log. Continue with the next line.
		klog.FromContext(ctx).V(2).Info("Skipping malformed log line", "path", r.path, "err", err)
		return nil
	}
	begins := !r.midLine[line.Stream]
	r.midLine[line.Stream] = line.Partial
	out := r.out[line.Stream]
	if out == nil || line.Time.Before(r.options.Since) {
		return nil
	}
	text := line.Text
	if r.options.Timestamps && begins {
		text = append(append([]byte(line.Time.Format(stampFormat)), ' '), text...)
	}
	return r.write(out, text)
}

func (r *reader) write(out io.Writer, text []byte) error {
	if r.options.Limit >= 0 && int64(len(text)) > r.remaining {
		text = text[:r.remaining]
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	if r.options.Limit < 0 {
		return nil
	}
	if r.remaining -= int64(len(text)); r.remaining <= 0 {
		return errLimit
	}
	return nil
}

// open opens the current file, in place of the previous one.
func (r *reader) open() error {
	file, err := os.Open(r.path)
	if err != nil {
		return fmt.Errorf("failed to open log file %q: %w", r.path, err)
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, r.buffered = file, bufio.NewReader(file)
	return nil
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
	if r.changes != nil {
		_ = r.changes.Close()
	}
}

// seek moves to the first line of the tail.
func (r *reader) seek() error {
	start, err := tailStart(r.file, r.options.Tail)
	if err != nil {
		return fmt.Errorf("failed to find the last %d lines of log file %q: %w", r.options.Tail, r.path, err)
	}
	_, err = r.file.Seek(start, io.SeekStart)
	return err
}

// watch starts an inotify watch. They are limited: without one, the file is polled.
func (r *reader) watch(ctx context.Context) {
	changes, err := fsnotify.NewWatcher()
	if err == nil {
		// Watch the directory, because rotation replaces the file.
		if err = changes.Add(filepath.Dir(r.path)); err == nil {
			r.changes = changes
			return
		}
		_ = changes.Close()
	}
	klog.FromContext(ctx).Error(err, "Cannot watch the log file, will poll it", "path", r.path)
}

// rotated reports whether path names another file than the open one. If it names none, the runtime
// still writes to the open one.
func (r *reader) rotated() bool {
	now, err := os.Stat(r.path)
	if err != nil {
		return false
	}
	opened, err := r.file.Stat()
	return err == nil && !os.SameFile(now, opened)
}

// tailStart returns the offset of the last n lines; 0 for negative n.
func tailStart(file io.ReadSeeker, n int64) (int64, error) {
	if n < 0 {
		return 0, nil
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return end, err
	}
	block := make([]byte, 16<<10)
	// The newline at the end of the file starts no line.
	for at, first := end, true; at > 0; {
		size := min(at, int64(len(block)))
		at -= size
		if _, err := file.Seek(at, io.SeekStart); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(file, block[:size]); err != nil {
			return 0, err
		}
		for i := size - 1; i >= 0; i-- {
			if block[i] == '\n' && !first {
				if n--; n == 0 {
					return at + i + 1, nil
				}
			}
			first = false
		}
	}
	return 0, nil
}
