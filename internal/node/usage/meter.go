// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	goruntime "runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/projectquota"
)

const (
	// look is the interval at which the Meter asks which directories exist, and reads quotas.
	look = 10 * time.Second
	// verify is the interval at which a directory with a quota is walked as well.
	verify = 10 * time.Minute
	// share is how many times as long as a walk takes the directory is left alone afterwards.
	share = 20
	// slice is how long the walker works without a pause, and rest how many times as long it pauses then.
	slice = 10 * time.Millisecond
	rest  = 3
)

// Used is what a directory takes.
type Used struct {
	Bytes, Inodes int64
	// At is when it was measured.
	At time.Time
}

// Options are what a Meter depends on.
type Options struct {
	Clock clock.Clock
	// Period is the longest age of a result, unless walking takes long. If it is negative, nothing is measured.
	Period time.Duration
	// Dirs returns the directories to measure. It must be cheap.
	Dirs func() []string
}

// Meter measures directories.
type Meter struct {
	options Options
	quota   func(path string) (used Used, ok bool, err error)

	mu      sync.Mutex
	entries map[string]*entry
}

// entry is what is known about a directory.
type entry struct {
	used     Used
	measured bool
	due      time.Time // when to measure it again
	walked   time.Time
}

// New returns a Meter. Run measures.
func New(o Options) *Meter {
	return &Meter{options: o, quota: byQuota, entries: map[string]*entry{}}
}

// Of returns the newest measurement of a directory, or false if it has not been measured yet. Its result is as old as
// Used.At says: usually not more than Options.Period.
func (m *Meter) Of(path string) (Used, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[path]
	if e == nil || !e.measured {
		return Used{}, false
	}
	return e.used, true
}

// Run measures directories until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	if m.options.Period < 0 {
		return
	}
	goruntime.LockOSThread() // never unlocked: the thread ends with the goroutine
	beIdle()
	for ctx.Err() == nil {
		pause := m.round(ctx)
		select {
		case <-ctx.Done():
		case <-m.options.Clock.After(pause):
		}
	}
}

// beIdle gives the thread the input and output priority of those who yield to all others (ioprio_set(2)). Not every
// scheduler of the kernel knows it.
func beIdle() {
	const whoProcess, thisThread, idle = 1, 0, 3 << 13
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, thisThread, idle)
}

// round measures the directories that are due, and returns when to look again.
func (m *Meter) round(ctx context.Context) time.Duration {
	for _, path := range m.track(m.options.Dirs()) {
		if ctx.Err() != nil {
			return 0
		}
		m.measure(ctx, path)
	}
	return m.untilDue()
}

// track forgets directories that no longer exist, and returns those that are due.
func (m *Meter) track(paths []string) (due []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.options.Clock.Now()
	entries := make(map[string]*entry, len(paths))
	for _, path := range paths {
		e := m.entries[path]
		if e == nil {
			e = &entry{}
		}
		entries[path] = e
		if !now.Before(e.due) {
			due = append(due, path)
		}
	}
	m.entries = entries
	return due
}

// untilDue returns how long nothing needs to be measured: look at most, so that new directories are found.
func (m *Meter) untilDue() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, pause := m.options.Clock.Now(), min(look, max(m.options.Period, slice))
	for _, e := range m.entries {
		pause = min(pause, e.due.Sub(now))
	}
	return max(pause, slice)
}

// measure measures one directory.
func (m *Meter) measure(ctx context.Context, path string) {
	m.mu.Lock()
	e := m.entries[path]
	walked := e.walked
	m.mu.Unlock()

	began := m.options.Clock.Now()
	used, ok, err := m.quota(path)
	again := began.Add(min(look, m.options.Period))
	if isWalk := !ok && err == nil || ok && began.Sub(walked) >= verify; isWalk {
		used, err = walk(ctx, path, m.pauses())
		walked = m.options.Clock.Now()
		again = walked.Add(max(m.options.Period, share*walked.Sub(began)))
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, unix.ENOENT) {
		klog.FromContext(ctx).Error(err, "Cannot measure a directory, will retry", "path", path)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e.due, e.walked = again, walked
	if err == nil {
		used.At = began
		e.used, e.measured = used, true
	}
}

// pauses returns a function that pauses a walk from time to time.
func (m *Meter) pauses() func(context.Context) {
	began := m.options.Clock.Now()
	return func(ctx context.Context) {
		worked := m.options.Clock.Since(began)
		if worked < slice {
			return
		}
		select {
		case <-ctx.Done():
		case <-m.options.Clock.After(rest * worked):
		}
		began = m.options.Clock.Now()
	}
}

// byQuota measures a directory without walking it. ok is false if that is impossible.
func byQuota(path string) (used Used, ok bool, err error) {
	if used, ok := byMount(path); ok {
		return used, true, nil
	}
	project, err := projectquota.Open(path)
	if err != nil || project == nil {
		return Used{}, false, err
	}
	defer func() { err = errors.Join(err, project.Close()) }()
	if !project.IsOwn() {
		return Used{}, false, nil
	}
	bytes, inodes, err := project.Usage()
	return Used{Bytes: int64(bytes), Inodes: int64(inodes)}, err == nil, err
}

// byMount measures a tmpfs that is mounted at a directory.
func byMount(path string) (Used, bool) {
	var fs unix.Statfs_t
	var dir, parent unix.Stat_t
	if unix.Statfs(path, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || unix.Lstat(path, &dir) != nil || unix.Lstat(path+"/..", &parent) != nil || dir.Dev == parent.Dev {
		return Used{}, false
	}
	return Used{Bytes: int64(fs.Blocks-fs.Bfree) * fs.Bsize, Inodes: int64(fs.Files - fs.Ffree)}, true
}
