// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"k8s.io/utils/clock"
)

// TestInterruptedFirstStart: a start that is interrupted before etcd is ready leaves a log without
// a member. The next start must not wait for an election.
func TestInterruptedFirstStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		b, err := Embedded(interrupted, dir, clock.RealClock{}, DefaultRetention)
		if err == nil { // etcd was ready before it noticed the cancellation
			b.Close()
		} else if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	b := open(t, dir)
	if _, err := b.Client().Put(t.Context(), "/registry/a", "1"); err != nil {
		t.Fatal(err)
	}
	b.Close()

	// From now on, an interrupted start removes nothing.
	if b, err := Embedded(interrupted, dir, clock.RealClock{}, DefaultRetention); err == nil {
		b.Close()
	}
	b = open(t, dir)
	defer b.Close()
	if got, err := b.Client().Get(t.Context(), "/registry/a"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("after an interrupted start the store has %v, %v", got, err)
	}
}

// TestStoreWithoutMarkIsKept: a store from another source, such as a backup, has no mark and is
// used.
func TestStoreWithoutMarkIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	open(t, dir).Close()
	if marked, err := exists(birthMark(dir)); marked || err != nil {
		t.Fatalf("a ready store still has the mark: %v, %v", marked, err)
	}
	if err := beginBirth(dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{birthMark(dir): false, memberDir(dir): true} {
		if got, err := exists(path); got != want || err != nil {
			t.Errorf("%s exists: %v, %v", path, got, err)
		}
	}
}
