// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

const period = 10 * time.Second

type rotation struct {
	*Rotator
	clock  *clocktesting.FakeClock
	path   string
	reopen error
}

func newRotation(t *testing.T) *rotation {
	r := &rotation{clock: clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)), path: filepath.Join(t.TempDir(), "0.log")}
	r.Rotator = NewRotator(RotatorOptions{
		Reopen: func(_ context.Context, id string) error {
			if id != "id" {
				t.Errorf("reopened %q", id)
			}
			if r.reopen != nil {
				return r.reopen
			}
			return os.WriteFile(r.path, nil, 0o600)
		},
		Clock: r.clock, MaxSize: 10, MaxFiles: 3, Period: period,
	})
	r.Start("id", r.path)
	return r
}

// round writes text to the current log, and checks its size a second later.
func (r *rotation) round(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(time.Second)
	r.rotateAll(context.Background())
}

// files returns the files on disk with their content, in brackets if it is compressed.
func (r *rotation) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(filepath.Dir(r.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(filepath.Dir(r.path), entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var in io.Reader = file
		brackets := "%s"
		if strings.HasSuffix(entry.Name(), ".gz") {
			if in, err = gzip.NewReader(file); err != nil {
				t.Fatal(err)
			}
			brackets = "[%s]"
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		out[entry.Name()] = fmt.Sprintf(brackets, data)
	}
	return out
}

func TestRotation(t *testing.T) {
	r := newRotation(t)
	for i, want := range []map[string]string{
		{"0.log": "", "0.log.20300101-000001": "0123456789"},
		{"0.log": "", "0.log.20300101-000001.gz": "[0123456789]", "0.log.20300101-000002": "1123456789"},
		{"0.log": "", "0.log.20300101-000002.gz": "[1123456789]", "0.log.20300101-000003": "2123456789"},
		{"0.log": "", "0.log.20300101-000003.gz": "[2123456789]", "0.log.20300101-000004": "3123456789"},
	} {
		r.round(t, fmt.Sprintf("%d123456789", i))
		if diff := cmp.Diff(want, r.files(t)); diff != "" {
			t.Fatalf("round %d: %s", i, diff)
		}
	}
	r.round(t, "small")
	if got := r.files(t)["0.log"]; got != "small" {
		t.Errorf("a small file was rotated: %q", got)
	}
	r.Stop("id")
	r.round(t, "0123456789")
	if got := r.files(t)["0.log"]; got != "0123456789" {
		t.Errorf("rotated after Stop: %q", got)
	}
}

func TestRotationIsUndoneWhenTheRuntimeKeepsTheFile(t *testing.T) {
	r := newRotation(t)
	r.reopen = errors.New("busy")
	r.round(t, "0123456789")
	if diff := cmp.Diff(map[string]string{"0.log": "0123456789"}, r.files(t)); diff != "" {
		t.Error(diff)
	}
}

func TestRotationAfterCrash(t *testing.T) {
	r := newRotation(t)
	old := r.path + ".20290101-000000"
	for path, text := range map[string]string{old: "old", old + ".gz.tmp": "half", old + ".tmp": "half"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The log was renamed, but the runtime was not asked to reopen it.
	r.clock.Step(time.Second)
	r.rotateAll(context.Background())
	if diff := cmp.Diff(map[string]string{"0.log": "", "0.log.20290101-000000.gz": "[old]"}, r.files(t)); diff != "" {
		t.Error(diff)
	}
	// A log was compressed, but the original still exists.
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.round(t, "0123456789")
	if diff := cmp.Diff(map[string]string{"0.log": "", "0.log.20290101-000000.gz": "[old]", "0.log.20300101-000002": "0123456789"}, r.files(t)); diff != "" {
		t.Error(diff)
	}
}

func TestRunChecksEachPeriod(t *testing.T) {
	r := newRotation(t)
	if err := os.WriteFile(r.path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	for !r.clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	r.clock.Step(period)
	for deadline := time.Now().Add(10 * time.Second); len(r.files(t)) != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never rotated")
		}
	}
	cancel()
	<-done
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0.log", "0.log.20300101-000000", "0.log.20290101-000000.gz", "1.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Remove(filepath.Join(dir, "0.log")); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "1.log" {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := Remove("/none/0.log"); err != nil {
		t.Error(err)
	}
}
