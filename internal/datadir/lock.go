// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Lock is the right to run a cluster in a data directory. It ends with
// [Lock.Release] or with the process.
type Lock struct {
	layout Layout
	file   *os.File
}

// HeldError is the error if another process runs the cluster.
type HeldError struct {
	Root string
	// PID is the process, or 0 if it has not written its PID yet.
	PID int
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s: in use by another process; stop it first or use another --data-dir", e.Root)
	}
	return fmt.Sprintf("data directory %s: in use by process %d; stop it first or use another --data-dir", e.Root, e.PID)
}

// Lock checks that the directory is a data directory or empty, creates it if it is missing, locks
// and marks it. It does not wait: if another process, or another cluster in this one, has the lock,
// it returns a [*HeldError].
func (l Layout) Lock() (*Lock, error) {
	if err := l.Check(); err != nil && !errors.Is(err, ErrEmpty) {
		return nil, err
	}
	lock, err := l.acquire()
	if err != nil {
		return nil, err
	}
	if err := l.prepare(lock); err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return lock, nil
}

// acquire locks the lock file. It retries if [Lock.Remove] removes the file at that moment.
func (l Layout) acquire() (*Lock, error) {
	for {
		// Other users may traverse the directory but not list it: a container in its own user
		// namespace must reach its files. Secret files have stricter modes.
		if err := os.MkdirAll(l.Root, 0o711); err != nil {
			return nil, l.wrap(fmt.Errorf("cannot be created: %w", bare(err)))
		}
		file, err := os.OpenFile(l.lockFile(), os.O_RDWR|os.O_CREATE, 0o644)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, l.wrap(fmt.Errorf("cannot be locked: %w", bare(err)))
		}
		if err := l.flock(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		there, err := isAt(file, l.lockFile())
		if err == nil && there {
			return &Lock{layout: l, file: file}, nil
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, l.wrap(err)
		}
	}
}

func (l Layout) flock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return &HeldError{Root: l.Root, PID: readPID(file)}
	}
	if err != nil {
		return l.wrap(fmt.Errorf("cannot be locked: %w", err))
	}
	return nil
}

// isAt reports whether an open file is the one at a path.
func isAt(file *os.File, path string) (bool, error) {
	open, err := file.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(open, named), err
}

// prepare writes the PID of the new holder and marks the directory. It repeats the check, because
// from now on no other process can change the result.
func (l Layout) prepare(lock *Lock) error {
	if err := lock.write(strconv.Itoa(os.Getpid()) + "\n"); err != nil {
		return l.wrap(err)
	}
	err := l.Check()
	if errors.Is(err, ErrEmpty) {
		err = l.wrap(l.mark())
	}
	return err
}

func (k *Lock) write(text string) error {
	if err := k.file.Truncate(0); err != nil {
		return err
	}
	_, err := k.file.WriteAt([]byte(text), 0)
	return err
}

// Release releases the lock. The lock file stays: if it were removed, a process that has just
// opened it would lock a file that no other process sees.
func (k *Lock) Release() error {
	if k == nil || k.file == nil {
		return nil
	}
	err := errors.Join(k.write(""), k.file.Close())
	k.file = nil
	return err
}

// Holder returns the process that runs the cluster now, or 0. It needs no write permission. It
// relies on the lock, not on the PID, which may belong to another process by now.
func (l Layout) Holder() (int, error) {
	file, err := os.Open(l.lockFile())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, l.wrap(unreadable(err))
	}
	defer file.Close()
	pid := readPID(file)
	if pid == 0 || !alive(pid) {
		return 0, nil
	}
	// A shared lock is available exactly if no process has the exclusive one. Closing the file
	// releases it at once.
	if syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return 0, nil
	}
	return pid, nil
}

// alive reports whether a process exists. EPERM means that it does, and belongs to another user.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

func readPID(r io.ReaderAt) int {
	buf := make([]byte, 32)
	n, err := r.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}
