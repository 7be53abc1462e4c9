// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func writerAt(dir string) atomicWriter {
	return atomicWriter{dir: dir, clock: clocktesting.NewFakePassiveClock(epoch), own: func(string) error { return nil }}
}

func files(pairs ...string) payload {
	out := payload{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = file{data: []byte(pairs[i+1]), mode: 0o640}
	}
	return out
}

// shown returns what a container sees: all paths that do not begin with "..".
func shown(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.Walk(real, func(path string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			out[entry.Name()+strings.TrimPrefix(path, real)] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestWriteReplacesAllFiles(t *testing.T) {
	dir := t.TempDir()
	w := writerAt(dir)
	for _, step := range []payload{
		files("a", "1", "deep/b", "2", "deep/er/c", "3"),
		files("a", "1", "deep/b", "2", "deep/er/c", "3"),
		files("a", "changed", "new", "4"),
		files("deep", "is a file now"),
		files(),
		files("a", "again"),
	} {
		if err := w.write(step); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for path, f := range step {
			want[path] = string(f.data)
		}
		if diff := cmp.Diff(want, shown(t, dir)); diff != "" {
			t.Fatal(diff)
		}
		stamped, err := filepath.Glob(filepath.Join(dir, "..2*"))
		if err != nil || len(stamped) != 1 {
			t.Errorf("stamped directories: %v, %v", stamped, err)
		}
	}
}

func TestUnchangedContentIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	w := writerAt(dir)
	if err := w.write(files("a", "1")); err != nil {
		t.Fatal(err)
	}
	before, err := w.current()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.write(files("a", "1")); err != nil {
		t.Fatal(err)
	}
	if after, _ := w.current(); after != before {
		t.Errorf("rewritten: %s, was %s", after, before)
	}
}

// After a crash at any point, the next write succeeds.
func TestWriteAfterCrash(t *testing.T) {
	for name, crash := range map[string]func(t *testing.T, dir string){
		"before the switch of directories": func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(dir, "..2001_01_01_00_00_00.1"))
		},
		"between link and rename": func(t *testing.T, dir string) {
			if err := os.Symlink("..2001_01_01_00_00_00.1", filepath.Join(dir, newDataLink)); err != nil {
				t.Fatal(err)
			}
		},
		"before old files are removed": func(t *testing.T, dir string) {
			if err := os.Symlink("..data/old", filepath.Join(dir, "old")); err != nil {
				t.Fatal(err)
			}
		},
		"with the data directory missing": func(t *testing.T, dir string) {
			current, err := writerAt(dir).current()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(dir, current)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := writerAt(dir).write(files("a", "1", "b", "2")); err != nil {
				t.Fatal(err)
			}
			crash(t, dir)
			if err := writerAt(dir).write(files("a", "3")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"a": "3"}, shown(t, dir)); diff != "" {
				t.Error(diff)
			}
			if stamped, _ := filepath.Glob(filepath.Join(dir, "..2*")); len(stamped) != 1 {
				t.Errorf("not removed: %v", stamped)
			}
		})
	}
}

func TestMountPointsOfOtherVolumesStay(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, filepath.Join(dir, "nested"))
	for _, content := range []payload{files("a", "1"), files("b", "2")} {
		if err := writerAt(dir).write(content); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "nested")); err != nil {
		t.Error(err)
	}
}

func TestModes(t *testing.T) {
	dir := t.TempDir()
	content := payload{"secret": {mode: 0o400}, "open": {mode: 0o666}, "program": {mode: 0o755}}
	if err := writerAt(dir).write(content); err != nil {
		t.Fatal(err)
	}
	for path, f := range content {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode().Perm() != f.mode {
			t.Errorf("%s: got %v, %v; want %v", path, info.Mode(), err, f.mode)
		}
	}
}

func TestPathsOutsideAreRefused(t *testing.T) {
	for _, path := range []string{"", ".", "/abs", "..", "../x", "a/../../x", "a/..", "..data", "..x/y"} {
		if err := writerAt(t.TempDir()).write(payload{path: {}}); err == nil {
			t.Errorf("%q was written", path)
		}
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}
