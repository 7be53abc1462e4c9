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

// Options says what of a log is wanted.
type Options struct {
	// Tail is the number of lines at the end to begin with; negative for all.
	Tail int64
	// Since leaves out lines from before.
	Since time.Time
	// Limit is the number of bytes after which to stop; negative for none.
	Limit int64
	// Timestamps puts its time before each line.
	Timestamps bool
	// Follow goes on until Running says that the container ended, or ctx is done.
	Follow  bool
	Running func() bool
	Clock   clock.WithTicker
	// Flush is called whenever a follower has nothing to write for now. Nil: never.
	Flush func() error
}

// stampFormat has all nine digits, so that columns line up and texts sort by time.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// checkPeriod is how long after the end of a container its follower may notice,
// when nothing is written to the log any more.
const checkPeriod = time.Second

// errLimit ends reading at Options.Limit.
var errLimit = errors.New("limit reached")

// Read writes the log at path to stdout and stderr, of which one may be nil.
// It returns nil at the end of the log, or when ctx is done while following.
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
	partial   []byte // a line the runtime has not finished writing
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

// more waits until there may be more to read. Before it gives up on a file,
// because of rotation or the container's end, it reads that to the end once more:
// what was written between the last read and the finding would be lost.
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

// wait sleeps until the log file changes, or a while.
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
			// Old files are compressed in the same directory.
			if event.Name == r.path {
				return true, nil
			}
		}
	}
}

// drain writes all whole lines there are now.
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

// emit writes one line, if it is wanted.
func (r *reader) emit(ctx context.Context, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	line, err := ParseLine(raw)
	if err != nil {
		// A crash of the machine can leave garbage; the rest is still of use.
		klog.FromContext(ctx).V(2).Info("Log line skipped", "path", r.path, "err", err)
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

// open opens the file that path names now, in place of the one before.
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

// seek moves to the first line that is wanted.
func (r *reader) seek() error {
	start, err := tailStart(r.file, r.options.Tail)
	if err != nil {
		return fmt.Errorf("failed to find the last %d lines of log file %q: %w", r.options.Tail, r.path, err)
	}
	_, err = r.file.Seek(start, io.SeekStart)
	return err
}

// watch asks to be woken by changes. The kernel has few watches to give; without
// one, the timer has to do.
func (r *reader) watch(ctx context.Context) {
	changes, err := fsnotify.NewWatcher()
	if err == nil {
		// The directory, since the file is replaced on rotation.
		if err = changes.Add(filepath.Dir(r.path)); err == nil {
			r.changes = changes
			return
		}
		_ = changes.Close()
	}
	klog.FromContext(ctx).Error(err, "Log file is polled instead of watched", "path", r.path)
}

// rotated says that path names another file than the open one. While it names none,
// the runtime is still writing to the old.
func (r *reader) rotated() bool {
	now, err := os.Stat(r.path)
	if err != nil {
		return false
	}
	opened, err := r.file.Stat()
	return err == nil && !os.SameFile(now, opened)
}

// tailStart returns where the last n lines begin; for negative n that is 0.
func tailStart(file io.ReadSeeker, n int64) (int64, error) {
	if n < 0 {
		return 0, nil
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return end, err
	}
	block := make([]byte, 16<<10)
	// The newline at the very end closes the last line and begins none.
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
