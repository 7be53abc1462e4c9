// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// damage is one way to damage a store.
type damage struct {
	name string
	// killed selects the store whose process was killed instead of the stopped one.
	killed bool
	// quick cases always run; the others if KINDRED_CRASH is set.
	quick bool
	do    func(d *damaged) error
	// refused cases must prevent the start.
	refused bool
}

// damaged is the copy of a store that a case damages.
type damaged struct {
	dir, older string
	random     *rand.Rand
}

func (d *damaged) db() string  { return filepath.Join(d.dir, "etcd/member/snap/db") }
func (d *damaged) wal() string { return filepath.Join(d.dir, "etcd/member/wal") }

// segment is the last file of the log.
func (d *damaged) segment() string {
	names, _ := filepath.Glob(filepath.Join(d.wal(), "*.wal"))
	slices.Sort(names)
	return names[len(names)-1]
}

// written returns how much of a file is used, before its trailing zeros.
func written(path string) (int64, error) {
	content, err := os.ReadFile(path)
	return int64(len(bytes.TrimRight(content, "\x00"))), err
}

// overwrite changes bytes of a file in place.
func overwrite(path string, at int64, change func([]byte), n int) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	part := make([]byte, n)
	if _, err := file.ReadAt(part, at); err != nil {
		return err
	}
	change(part)
	_, err = file.WriteAt(part, at)
	return err
}

func flipped(b []byte) { b[0] ^= 0x10 }
func zeroed(b []byte)  { clear(b) }

// page is the size of bbolt's pages.
const page = 4096

// pagesOf returns the used pages of a type in the database.
func (d *damaged) pagesOf(flag uint16) []int64 {
	content, err := os.ReadFile(d.db())
	if err != nil {
		panic(err)
	}
	var found []int64
	for at := int64(2 * page); at+page <= int64(len(content)); at += page {
		if binary.LittleEndian.Uint64(content[at:]) == uint64(at/page) && binary.LittleEndian.Uint16(content[at+8:]) == flag {
			found = append(found, at)
		}
	}
	return found
}

// onPages changes a byte on pages of a type.
func onPages(flag uint16, offset int64, change func([]byte), n int) func(*damaged) error {
	return func(d *damaged) error {
		pages := d.pagesOf(flag)
		if len(pages) == 0 {
			return errors.New("no such page")
		}
		for _, at := range pages {
			if err := overwrite(d.db(), at+offset, change, n); err != nil {
				return err
			}
		}
		return nil
	}
}

// inDB changes bytes of the database at an offset given as a fraction of its size.
func inDB(part float64, change func([]byte), n int) func(*damaged) error {
	return func(d *damaged) error {
		size, err := written(d.db())
		if err != nil {
			return err
		}
		return overwrite(d.db(), min(int64(part*float64(size)), size-int64(n)), change, n)
	}
}

// inLog does the same in the last file of the write-ahead log.
func inLog(part float64, change func([]byte), n int) func(*damaged) error {
	return func(d *damaged) error {
		size, err := written(d.segment())
		if err != nil {
			return err
		}
		return overwrite(d.segment(), min(int64(part*float64(size)), size-int64(n)), change, n)
	}
}

// anywhere damages a seeded place.
func anywhere(where func(float64, func([]byte), int) func(*damaged) error, change func([]byte), n int) func(*damaged) error {
	return func(d *damaged) error { return where(d.random.Float64(), change, n)(d) }
}

// letter changes a letter in the value of an object, so that it still decodes.
func letter(prefix string) func(*damaged) error {
	return func(d *damaged) error {
		content, err := os.ReadFile(d.db())
		if err != nil {
			return err
		}
		value := regexp.MustCompile(`/registry/configmaps/default/` + prefix + `[\s\S]{1,600}?[a-z]{150}`)
		for _, place := range value.FindAllIndex(content, -1) {
			content[place[1]-1] ^= 1
		}
		return os.WriteFile(d.db(), content, 0o600)
	}
}

// garbled damages the object's envelope wherever it is stored, so that it can't be decoded.
func garbled(prefix string) func(*damaged) error {
	return func(d *damaged) error {
		content, err := os.ReadFile(d.db())
		if err != nil {
			return err
		}
		value := regexp.MustCompile(`/registry/configmaps/default/` + prefix + `[\s\S]{1,40}?k8s\x00`)
		for _, place := range value.FindAllIndex(content, -1) {
			for i := range 12 {
				content[place[1]+i] ^= 0xff
			}
		}
		return os.WriteFile(d.db(), content, 0o600)
	}
}

func cutTo(path func(*damaged) string, part float64) func(*damaged) error {
	return func(d *damaged) error {
		size, err := written(path(d))
		if err != nil {
			return err
		}
		return os.Truncate(path(d), int64(part*float64(size)))
	}
}

func without(names ...string) func(*damaged) error {
	return func(d *damaged) error {
		for _, name := range names {
			if err := os.RemoveAll(filepath.Join(d.dir, name)); err != nil {
				return err
			}
		}
		return nil
	}
}

// older replaces a part of the store by its state at an earlier stop.
func older(names ...string) func(*damaged) error {
	return func(d *damaged) error {
		for _, name := range names {
			target := filepath.Join(d.dir, name)
			if err := os.RemoveAll(target); err != nil {
				return err
			}
			if err := os.CopyFS(target, os.DirFS(filepath.Join(d.older, name))); err != nil {
				// A single file.
				if err := copySparse(filepath.Join(d.older, name), target); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// damages are the ways to damage a store.
func damages() []damage {
	const branch, leaf = 1, 2
	db, segment := (*damaged).db, (*damaged).segment
	all := []damage{
		{name: "nothing", quick: true, do: func(*damaged) error { return nil }},
		{name: "nothing after SIGKILL", quick: true, killed: true, do: func(*damaged) error { return nil }},

		{name: "db/flip/meta 0", do: func(d *damaged) error { return overwrite(d.db(), 40, flipped, 1) }},
		{name: "db/flip/meta 1", do: func(d *damaged) error { return overwrite(d.db(), page+40, flipped, 1) }},
		{name: "db/flip/both metas", refused: true, do: func(d *damaged) error {
			return errors.Join(overwrite(d.db(), 40, flipped, 1), overwrite(d.db(), page+40, flipped, 1))
		}},
		{name: "db/flip/leaf: page id", refused: true, do: onPages(leaf, 0, flipped, 1)},
		{name: "db/flip/leaf: flags", quick: true, refused: true, do: onPages(leaf, 8, flipped, 1)},
		{name: "db/flip/leaf: count", refused: true, do: onPages(leaf, 11, flipped, 1)},
		{name: "db/flip/leaf: overflow", refused: true, do: onPages(leaf, 14, flipped, 1)},
		{name: "db/flip/leaf: position of a value", refused: true, do: onPages(leaf, 16+4+2, flipped, 1)},
		{name: "db/flip/leaf: size of a value", refused: true, do: onPages(leaf, 16+12+2, flipped, 1)},
		{name: "db/flip/branch: page id", refused: true, do: onPages(branch, 0, flipped, 1)},
		{name: "db/flip/branch: child", refused: true, do: onPages(branch, 16+8, flipped, 1)},
		{name: "db/flip/branch: child far away", refused: true, do: onPages(branch, 16+12, flipped, 1)},
		{name: "db/flip/branch: position of a key", refused: true, do: onPages(branch, 16+2, flipped, 1)},
		{name: "db/loop/branch: itself", quick: true, refused: true, do: func(d *damaged) error {
			var failed error
			for _, at := range d.pagesOf(branch) {
				failed = errors.Join(failed, overwrite(d.db(), at+16+8, func(b []byte) { binary.LittleEndian.PutUint64(b, uint64(at/page)) }, 8))
			}
			return failed
		}},
		{name: "db/flip/a letter of an object", quick: true, refused: true, do: letter("second-001")},
		{name: "db/flip/a letter of an object, after SIGKILL", killed: true, refused: true, do: letter("second-001")},
		{name: "db/flip/an object's envelope", quick: true, refused: true, do: garbled("second-002")},
		{name: "db/flip/an object's envelope, after SIGKILL", killed: true, refused: true, do: garbled("second-002")},
		{name: "db/zero/all leaves", refused: true, do: onPages(leaf, 0, zeroed, page)},
		{name: "db/zero/all branches", quick: true, refused: true, do: onPages(branch, 0, zeroed, page)},
		{name: "db/zero/meta 0", do: func(d *damaged) error { return overwrite(d.db(), 0, zeroed, page) }},
		{name: "db/zero/both metas", refused: true, do: func(d *damaged) error { return overwrite(d.db(), 0, zeroed, 2*page) }},
		{name: "db/cut/to nothing", refused: true, do: cutTo(db, 0)},
		{name: "db/cut/to a tenth", refused: true, do: cutTo(db, 0.1)},
		{name: "db/cut/to a half", quick: true, refused: true, do: cutTo(db, 0.5)},
		{name: "db/cut/its last page", do: cutTo(db, 0.999)},
		{name: "db/removed", quick: true, do: without("etcd/member/snap/db")},
		{name: "db/removed with its directory", do: without("etcd/member/snap")},
		{name: "db/older", do: older("etcd/member/snap/db")},
		{name: "db/text", refused: true, do: func(d *damaged) error { return os.WriteFile(d.db(), bytes.Repeat([]byte("damage "), 9000), 0o600) }},

		{name: "log/flip/first record", refused: true, do: func(d *damaged) error { return overwrite(d.segment(), 9, flipped, 1) }},
		{name: "log/flip/metadata", refused: true, do: func(d *damaged) error { return overwrite(d.segment(), 40, flipped, 1) }},
		{name: "log/flip/a tenth in", quick: true, refused: true, do: inLog(0.1, flipped, 1)},
		{name: "log/flip/half way", refused: true, do: inLog(0.5, flipped, 1)},
		{name: "log/flip/its end", refused: true, do: inLog(1, flipped, 9)},
		{name: "log/flip/half way, after SIGKILL", killed: true, refused: true, do: inLog(0.5, flipped, 1)},
		{name: "log/zero/first page", refused: true, do: inLog(0, zeroed, page)},
		{name: "log/zero/half way", quick: true, refused: true, do: inLog(0.5, zeroed, page)},
		{name: "log/zero/its end", refused: true, do: inLog(1, zeroed, page)},
		{name: "log/zero/half way, after SIGKILL", killed: true, refused: true, do: inLog(0.5, zeroed, page)},
		{name: "log/cut/to nothing", refused: true, do: cutTo(segment, 0)},
		{name: "log/cut/to a half", refused: true, do: cutTo(segment, 0.5)},
		{name: "log/cut/within the last record", refused: true, do: cutTo(segment, 0.9999)},
		{name: "log/removed", quick: true, refused: true, do: without("etcd/member/wal")},
		{name: "log/emptied", refused: true, do: func(d *damaged) error { return os.Remove(d.segment()) }},
		{name: "log/older", quick: true, refused: true, do: older("etcd/member/wal")},
		{name: "log/renamed", refused: true, do: func(d *damaged) error {
			return os.Rename(d.segment(), filepath.Join(d.wal(), "0000000000000003-0000000000000005.wal"))
		}},

		{name: "store/removed", quick: true, refused: true, do: without("etcd")},
		{name: "store/member removed", refused: true, do: without("etcd/member")},
		{name: "store/older", quick: true, refused: true, do: older("etcd/member")},
		{name: "store/older, with all records", do: older("etcd", "kindred.json")},
		{name: "record/removed", do: without("etcd/record", "etcd/sums")},
		{name: "record/cut", do: func(d *damaged) error {
			return errors.Join(os.WriteFile(filepath.Join(d.dir, "etcd/record"), []byte("x"), 0o600), os.WriteFile(filepath.Join(d.dir, "etcd/sums"), []byte("x"), 0o600))
		}},
	}
	for i := range 6 {
		all = append(all,
			damage{name: fmt.Sprintf("db/flip/anywhere %d", i), do: anywhere(inDB, flipped, 1)},
			damage{name: fmt.Sprintf("db/zero/anywhere %d", i), do: anywhere(inDB, zeroed, page)},
			damage{name: fmt.Sprintf("log/flip/anywhere %d", i), do: anywhere(inLog, flipped, 1)},
			damage{name: fmt.Sprintf("log/zero/anywhere %d", i), do: anywhere(inLog, zeroed, 512)})
	}
	return all
}

// TestDamage damages copies of a store. Each start must either serve all acknowledged objects or fail
// with one line that says what is damaged and what to do.
func TestDamage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("KINDRED_CRASH_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d; KINDRED_CRASH_SEED=%d repeats this run", seed, seed)
	originals := makeStores(t, rand.New(rand.NewPCG(seed, 0)))
	for i, c := range damages() {
		t.Run(c.name, func(t *testing.T) {
			if !c.quick && os.Getenv("KINDRED_CRASH") == "" {
				t.Skip("KINDRED_CRASH is not set")
			}
			dir, content := filepath.Join(t.TempDir(), "cluster"), originals.stoppedContent
			from := originals.stopped
			if c.killed {
				from, content = originals.killed, originals.killedWrite
			}
			copyStore(t, from, dir)
			if err := c.do(&damaged{dir: dir, older: originals.older, random: rand.New(rand.NewPCG(seed, uint64(i)))}); err != nil {
				t.Fatal(err)
			}
			if c.name == "store/older, with all records" {
				content = nil // a restored backup
			}
			judge(t, c, dir, content)
		})
	}
}

// TestTerminatedDuringStart sends SIGTERM at several moments of a start.
func TestTerminatedDuringStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	for _, after := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		s := up(t, dir)
		time.Sleep(after)
		if !s.terminate() {
			t.Fatalf("SIGTERM does not work %v after the start", after)
		}
		if text := s.stderr.String(); strings.Count(text, "\n") > 1 || strings.Contains(text, "goroutine ") {
			t.Errorf("%v after the start, SIGTERM ended in: %s", after, text)
		}
	}
	s := up(t, dir)
	s.awaitReady(t)
	if status, text := checkStore(t, t.TempDir()); status != 2 {
		t.Errorf("check-store of an empty directory: status %d, %s", status, text)
	}
	if text, err := exec.Command(damageBinary(t), "check-store", "--data-dir", dir).CombinedOutput(); err == nil || !bytes.Contains(text, []byte("in use")) {
		t.Errorf("check-store of a running cluster: %v, %s", err, text)
	}
	if !s.terminate() {
		t.Error("SIGTERM does not work")
	}
}

// judge checks a damaged store, and starts on it.
func judge(t *testing.T, c damage, dir string, content contents) {
	t.Helper()
	checked, found := checkStore(t, dir)
	began := time.Now()
	s := up(t, dir)
	select {
	case <-s.ended:
		if took := time.Since(began); took > endLimit {
			t.Errorf("the start took %v to end", took)
		}
		refusal(t, s)
		if checked != 1 {
			t.Errorf("the start is refused (%s), but check-store has exit status %d: %s", s.stderr.String(), checked, found)
		}
		if c.name == "nothing" || strings.HasPrefix(c.name, "nothing ") || strings.HasPrefix(c.name, "record/") {
			t.Errorf("refused: %s", s.stderr.String())
		}
		t.Logf("refused: %s", strings.TrimSpace(s.stderr.String()))
	case <-s.ready:
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := content.compare(ctx, s.client(t)); content != nil && err != nil {
			t.Errorf("damaged objects are served: %v", err)
		} else if c.refused {
			t.Error("the damage was not found")
		}
		if !s.terminate() {
			t.Error("SIGTERM does not work")
		}
		t.Log("survived")
	case <-time.After(readyLimit):
		t.Error("the start hangs")
		if !s.terminate() {
			t.Error("SIGTERM does not work")
		}
	}
}

// refusal checks the error of a start.
func refusal(t *testing.T, s *start) {
	t.Helper()
	text := s.stderr.String()
	if s.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit status %d", s.cmd.ProcessState.ExitCode())
	}
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "error: ") || strings.Contains(text, "goroutine ") {
		t.Errorf("not one line: %.2000s", text)
	}
	if !strings.Contains(text, s.dir) {
		t.Errorf("names no file: %s", text)
	}
	if !strings.Contains(text, "restore") {
		t.Errorf("does not say what to do: %s", text)
	}
}

// checkStore runs "kindred check-store", which must not change anything.
func checkStore(t *testing.T, dir string) (status int, output string) {
	t.Helper()
	before := fingerprint(t, dir)
	text, err := exec.Command(damageBinary(t), "check-store", "--data-dir", dir).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	if bytes.Contains(text, []byte("goroutine ")) {
		t.Errorf("check-store: %s", text)
	}
	if after := fingerprint(t, dir); after != before {
		t.Errorf("check-store changed the store: %s\nbefore: %s", after, before)
	}
	return status, string(text)
}
