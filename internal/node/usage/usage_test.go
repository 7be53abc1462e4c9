// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, make([]byte, size), 0o644))
}

func noPause(context.Context) {}

// du returns what du(1) counts.
func du(t *testing.T, path string, options ...string) int64 {
	t.Helper()
	out, err := exec.Command("du", append(append([]string{"-s", "-x"}, options...), path)...).Output()
	must(t, err)
	n, err := strconv.ParseInt(strings.Fields(string(out))[0], 10, 64)
	must(t, err)
	return n
}

// TestWalk compares with du(1): hard links count once, symbolic links are not followed, sparse files take what they take.
func TestWalk(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a/b/c"), 100_000)
	write(t, filepath.Join(dir, "a/d"), 1)
	must(t, os.Link(filepath.Join(dir, "a/b/c"), filepath.Join(dir, "link")))
	must(t, os.Symlink("/usr", filepath.Join(dir, "symlink")))
	for i := range 2*batch + 3 {
		write(t, filepath.Join(dir, "many", strconv.Itoa(i)), 1)
	}
	must(t, os.Truncate(filepath.Join(dir, "a/d"), 1<<40))
	used, err := walk(t.Context(), dir, noPause)
	if want := du(t, dir, "-B1"); err != nil || used.Bytes != want {
		t.Errorf("%d bytes, du says %d; %v", used.Bytes, want, err)
	}
	if want := du(t, dir, "--inodes"); used.Inodes != want {
		t.Errorf("%d inodes, du says %d", used.Inodes, want)
	}
}

// TestWalkDeep: a container can nest directories deeper than a path can be long.
func TestWalkDeep(t *testing.T) {
	dir := t.TempDir()
	name := strings.Repeat("n", 250)
	const depth = 60 // 15 kB
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(at, name, 0o755))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	file, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY, 0o644)
	must(t, err)
	_, err = unix.Write(file, make([]byte, 50_000))
	must(t, err)
	must(t, unix.Close(file))
	must(t, unix.Close(at))
	t.Cleanup(func() { _ = exec.Command("rm", "-r", filepath.Join(dir, name)).Run() })
	used, err := walk(t.Context(), dir, noPause)
	if err != nil || used.Inodes != depth+2 || used.Bytes < 50_000 {
		t.Errorf("%+v, %v; want %d inodes", used, err, depth+2)
	}
}

// TestWalkStays: what is mounted below does not count, nor what a symbolic link that replaces a directory names.
func TestWalkStays(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub/file"), 4096)
	before, err := walk(t.Context(), dir, noPause)
	must(t, err)
	mounted := filepath.Join(dir, "sub/mounted")
	must(t, os.Mkdir(mounted, 0o755))
	if err := unix.Mount("tmpfs", mounted, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(mounted, 0)) })
	write(t, filepath.Join(mounted, "file"), 300_000)
	if used, err := walk(t.Context(), dir, noPause); err != nil || used.Bytes > before.Bytes+8192 || used.Inodes != before.Inodes {
		t.Errorf("with a mount: %+v, %v; without: %+v", used, err, before)
	}
	if used, ok := byMount(mounted); !ok || used.Bytes < 300_000 || used.Bytes > 1<<20 || used.Inodes < 2 {
		t.Errorf("the tmpfs takes %+v, %t", used, ok)
	}
	if _, ok := byMount(filepath.Dir(mounted)); ok {
		t.Error("a directory that is no mount is measured by its file system")
	}

	replaced := false
	pause := func(context.Context) {
		if !replaced { // after the top, before its directories
			replaced = true
			must(t, os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "moved")))
			must(t, os.Symlink("/usr", filepath.Join(dir, "sub")))
		}
	}
	if used, err := walk(t.Context(), dir, pause); err != nil || used.Inodes > before.Inodes {
		t.Errorf("replaced by a symbolic link: %+v, %v", used, err)
	}
	must(t, os.Remove(filepath.Join(dir, "sub")))
	must(t, os.Rename(filepath.Join(dir, "moved"), filepath.Join(dir, "sub")))
}

// TestMeter: results are cached for a period, directories that vanish are forgotten, new ones are measured soon.
func TestMeter(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	dirs := []string{a}
	m := New(Options{Clock: clock, Period: time.Minute, Dirs: func() []string { return dirs }})
	if _, ok := m.Of(a); ok {
		t.Error("measured before Run")
	}
	var pause time.Duration
	round := func(after time.Duration) Used {
		t.Helper()
		clock.Step(after)
		pause = m.round(t.Context())
		used, ok := m.Of(a)
		if !ok {
			t.Fatal("not measured")
		}
		return used
	}
	first := round(0)
	if pause != look {
		t.Errorf("looks again after %v", pause)
	}
	write(t, filepath.Join(a, "file"), 4096)
	if again := round(59 * time.Second); again != first {
		t.Errorf("measured again after 59 s: %+v", again)
	}
	if pause != time.Second {
		t.Errorf("looks again after %v, want 1 s", pause)
	}
	dirs = []string{a, b}
	if again := round(time.Second); again.Inodes != 2 || again.At.Sub(first.At) != time.Minute {
		t.Errorf("after a minute: %+v", again)
	}
	if _, ok := m.Of(b); !ok {
		t.Error("a new directory is not measured")
	}
	dirs = []string{a, filepath.Join(b, "missing")}
	round(time.Second)
	if _, ok := m.Of(b); ok {
		t.Error("a directory that is not wanted any more is known")
	}
	if _, ok := m.Of(filepath.Join(b, "missing")); ok {
		t.Error("a missing directory has a size")
	}
}

// TestMeterSpares: a directory that takes long to walk is walked less often, and the walk pauses.
func TestMeterSpares(t *testing.T) {
	a := t.TempDir()
	for i := range 3 * batch {
		write(t, filepath.Join(a, strconv.Itoa(i)), 0)
	}
	clock := &slowClock{FakeClock: testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))}
	m := New(Options{Clock: clock, Period: time.Minute, Dirs: func() []string { return []string{a} }})
	m.round(t.Context())
	if clock.pauses == 0 || clock.paused < rest*clock.worked/2 {
		t.Errorf("%d pauses of %v in all, work %v", clock.pauses, clock.paused, clock.worked)
	}
	took := clock.worked + clock.paused
	if wait := m.entries[a].due.Sub(clock.Now()); wait < time.Minute || wait < share*took-time.Second {
		t.Errorf("walked again after %v, the walk took %v", wait, took)
	}
}

// slowClock is a clock by which each look at the time takes two seconds of work, and pauses take no real time.
type slowClock struct {
	*testingclock.FakeClock
	pauses         int
	paused, worked time.Duration
}

func (c *slowClock) Since(at time.Time) time.Duration {
	c.worked += 2 * time.Second
	c.Step(2 * time.Second)
	return c.FakeClock.Since(at)
}

func (c *slowClock) After(d time.Duration) <-chan time.Time {
	c.pauses++
	c.paused += d
	c.Step(d)
	done := make(chan time.Time, 1)
	done <- c.Now()
	return done
}

// TestMeterQuota: a directory with a quota is measured every ten seconds, and walked every ten minutes.
func TestMeterQuota(t *testing.T) {
	a := t.TempDir()
	write(t, filepath.Join(a, "file"), 1)
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	m := New(Options{Clock: clock, Period: time.Minute, Dirs: func() []string { return []string{a} }})
	asked := int64(0)
	m.quota = func(string) (Used, bool, error) {
		asked++
		return Used{Bytes: asked, Inodes: 1000}, true, nil
	}
	walks := 0
	for range 1200 / 10 {
		m.round(t.Context())
		switch used, _ := m.Of(a); used.Inodes {
		case 2:
			walks++
		case 1000:
		default:
			t.Fatalf("measured %+v", used)
		}
		clock.Step(10 * time.Second)
	}
	// A walk replaces the quota's answer until the directory is due again, a minute later.
	if walks < 10 || walks > 14 || asked < 100 {
		t.Errorf("%d results of walks, asked %d times for the quota", walks, asked)
	}
}

// TestMeterRuns runs a Meter with a real clock.
func TestMeterRuns(t *testing.T) {
	a := t.TempDir()
	m := New(Options{Clock: realClock(), Period: 10 * time.Millisecond, Dirs: func() []string { return []string{a} }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	write(t, filepath.Join(a, "file"), 1)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if used, ok := m.Of(a); ok && used.Inodes == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the new file is not found")
		}
	}
	cancel()
	<-done
	New(Options{Period: -1}).Run(t.Context()) // returns
}

func realClock() clock.Clock { return clock.RealClock{} }
