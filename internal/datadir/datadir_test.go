// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func layoutAt(t *testing.T, root string) Layout {
	t.Helper()
	l, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree returns every path below root with its mode, size and time, to compare directories.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		paths = append(paths, fmt.Sprintf("%s %v %d %v", path, info.Mode(), info.Size(), info.ModTime()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestCheckAndLock(t *testing.T) {
	tests := []struct {
		name    string
		files   map[string]string
		empty   bool   // Check returns ErrEmpty
		refused string // part of the error
	}{
		{name: "absent", empty: true},
		{name: "ours", files: map[string]string{"kindred.version": "1\n", "etcd/member/wal": "x"}},
		{name: "died while being set up", files: map[string]string{"kindred.lock": "12\n", "kindred.version.new": ""}, empty: true},
		{name: "fresh file system", files: map[string]string{"lost+found/x": ""}, empty: true},
		{name: "foreign", files: map[string]string{"photos/cat.jpg": "meow"}, refused: `not empty and not Kindred's (it has "photos"`},
		{name: "newer", files: map[string]string{"kindred.version": "2\n"}, refused: "written by a newer kindred (format 2, this one knows 1)"},
		{name: "broken version", files: map[string]string{"kindred.version": "one"}, refused: "does not hold a format number"},
		{name: "version is a directory", files: map[string]string{"kindred.version/x": ""}, refused: "cannot be read"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := layoutAt(t, filepath.Join(t.TempDir(), "data"))
			for name, content := range tt.files {
				write(t, l.path(name), content)
			}
			checkErr := l.Check()
			if got := errors.Is(checkErr, ErrEmpty); got != tt.empty {
				t.Errorf("Check() = %v, want empty %v", checkErr, tt.empty)
			}
			if tt.refused != "" {
				before := tree(t, l.Root)
				lock, err := l.Lock()
				if err == nil {
					t.Fatal("Lock() accepted a directory that it must refuse", lock)
				}
				if !strings.Contains(err.Error(), tt.refused) || !strings.Contains(err.Error(), l.Root) {
					t.Errorf("Lock() = %q, want it to name the directory and say %q", err, tt.refused)
				}
				if diff := cmp.Diff(before, tree(t, l.Root)); diff != "" {
					t.Errorf("a refused directory was changed (-before +after):\n%s", diff)
				}
				return
			}
			lock, err := l.Lock()
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Check(); err != nil {
				t.Errorf("after Lock, Check() = %v", err)
			}
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRootIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "x")
	if _, err := layoutAt(t, path).Lock(); err == nil || !strings.Contains(err.Error(), "cannot be read: not a directory") {
		t.Errorf("Lock() = %v", err)
	}
}

func TestSecondLockNamesTheHolder(t *testing.T) {
	l := layoutAt(t, t.TempDir())
	first, err := l.Lock()
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Lock()
	var held *HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Fatalf("second Lock() = %v, want it held by %d", err, os.Getpid())
	}
	if pid, err := l.Holder(); err != nil || pid != os.Getpid() {
		t.Errorf("Holder() = %d, %v", pid, err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	if err := first.Release(); err != nil {
		t.Errorf("releasing twice: %v", err)
	}
	if pid, err := l.Holder(); err != nil || pid != 0 {
		t.Errorf("after Release, Holder() = %d, %v", pid, err)
	}
	second, err := l.Lock()
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
}

// TestStalePIDIsNoHolder: the PID of another process in the lock file does not make a directory
// look used.
func TestStalePIDIsNoHolder(t *testing.T) {
	l := layoutAt(t, t.TempDir())
	write(t, l.lockFile(), fmt.Sprintln(os.Getpid()))
	if pid, err := l.Holder(); err != nil || pid != 0 {
		t.Errorf("Holder() = %d, %v", pid, err)
	}
}

// TestLockOfAKilledProcess: the lock of a killed process is free at once.
func TestLockOfAKilledProcess(t *testing.T) {
	if root := os.Getenv("DATADIR_TEST_HOLD"); root != "" {
		if _, err := layoutAt(t, root).Lock(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("locked")
		select {}
	}
	l := layoutAt(t, t.TempDir())
	child := exec.Command(os.Args[0], "-test.run=^TestLockOfAKilledProcess$")
	child.Env = append(os.Environ(), "DATADIR_TEST_HOLD="+l.Root)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("child printed %q, %v", line, err)
	}
	_, err = l.Lock()
	if want := fmt.Sprintf("in use by process %d", child.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Lock() = %v, want %q", err, want)
	}
	child.Process.Kill()
	child.Wait()
	if pid, err := l.Holder(); err != nil || pid != 0 {
		t.Errorf("Holder() = %d, %v", pid, err)
	}
	lock, err := l.Lock()
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
}

func TestInstance(t *testing.T) {
	l := layoutAt(t, t.TempDir())
	if _, found, err := l.ReadInstance(); found || err != nil {
		t.Fatalf("ReadInstance() = %v, %v on an empty directory", found, err)
	}
	want := Instance{
		PID: 7, Version: "v0.1.0", StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Server: "https://127.0.0.1:6443", NodeName: "a", ContainerRuntime: "unix:///run/x.sock", SimulatedNodes: 3,
	}
	if err := l.WriteInstance(want); err != nil {
		t.Fatal(err)
	}
	got, found, err := l.ReadInstance()
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	write(t, l.instanceFile(), "{")
	if _, _, err := l.ReadInstance(); err == nil || !strings.Contains(err.Error(), "kindred.json") {
		t.Errorf("broken file: %v", err)
	}
}

func TestRemove(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data")
	l := layoutAt(t, root)
	lock, err := l.Lock()
	if err != nil {
		t.Fatal(err)
	}
	write(t, l.path("etcd/member/wal"), "x")
	write(t, l.path("lost+found/x"), "x")
	late, err := os.Open(l.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := lock.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); !errors.Is(err, ErrEmpty) {
		t.Errorf("afterwards, Check() = %v", err)
	}
	// lost+found belongs to the file system, and stays.
	if diff := cmp.Diff([]string{root, filepath.Join(root, "lost+found"), filepath.Join(root, "lost+found/x")}, paths(t, root)); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
	if lock, err = l.Lock(); err != nil {
		t.Fatal("a removed directory cannot be locked again:", err)
	}
	if err := os.RemoveAll(l.path("lost+found")); err != nil {
		t.Fatal(err)
	}
	if err := lock.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory is left: %v", err)
	}
}

func paths(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLockSeesARemovedFile: a lock on a file that was removed meanwhile protects nothing.
func TestLockSeesARemovedFile(t *testing.T) {
	l := layoutAt(t, t.TempDir())
	write(t, l.lockFile(), "")
	file, err := os.Open(l.lockFile())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if same, err := isAt(file, l.lockFile()); err != nil || !same {
		t.Errorf("a present file: %v, %v", same, err)
	}
	os.Remove(l.lockFile())
	if same, err := isAt(file, l.lockFile()); err != nil || same {
		t.Errorf("a file that was removed: %v, %v", same, err)
	}
	write(t, l.lockFile(), "")
	if same, err := isAt(file, l.lockFile()); err != nil || same {
		t.Errorf("a file that was replaced: %v, %v", same, err)
	}
}

func TestID(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	absent := layoutAt(t, filepath.Join(dir, "a", "b")).ID()
	if through := layoutAt(t, filepath.Join(link, "a", "b")).ID(); through != absent {
		t.Errorf("through a link: %s, want %s", through, absent)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if existing := layoutAt(t, filepath.Join(dir, "a", "b")).ID(); existing != absent {
		t.Errorf("after it was created: %s, want %s", existing, absent)
	}
	if other := layoutAt(t, filepath.Join(dir, "a", "c")).ID(); other == absent {
		t.Error("two directories have one ID")
	}
	if len(absent) != 8 {
		t.Errorf("ID %q is not eight digits", absent)
	}
}

func TestDefault(t *testing.T) {
	if os.Geteuid() == 0 {
		if got, err := Default(); err != nil || got != "/var/lib/kindred" {
			t.Errorf("Default() = %q, %v as root", got, err)
		}
		return
	}
	t.Setenv("XDG_DATA_HOME", "/x/data")
	if got, err := Default(); err != nil || got != "/x/data/kindred" {
		t.Errorf("Default() = %q, %v", got, err)
	}
	t.Setenv("XDG_DATA_HOME", "relative")
	t.Setenv("HOME", "/home/a")
	if got, err := Default(); err != nil || got != "/home/a/.local/share/kindred" {
		t.Errorf("Default() = %q, %v", got, err)
	}
}
