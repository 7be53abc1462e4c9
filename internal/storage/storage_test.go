// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

func open(t *testing.T, dir string) *Backend {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := Embedded(ctx, dir, clock.RealClock{}, DefaultRetention)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEmbeddedKeepsWhatItAcknowledged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	b := open(t, dir)
	put, err := b.Client().Put(t.Context(), "/registry/a", "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
	b.Close()
	b.Close() // the second call has no effect
	b = open(t, dir)
	defer b.Close()
	got, err := b.Client().Get(t.Context(), "/registry/a")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "1" || got.Kvs[0].ModRevision != put.Header.Revision {
		t.Errorf("got %v, %v after a restart", got, err)
	}
}

// TestFailureIsReported: a fatal error of etcd is reported once, blocks its goroutine, and does not
// block Close.
func TestFailureIsReported(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	// Close does not wait for a failed server. This one still runs and writes to its directory.
	t.Cleanup(b.shutDown)
	logger := newLogger(filepath.Join(t.TempDir(), "log"), b.failed)
	for range 2 {
		go logger.Fatal("failed to save Raft hard state and entries", zap.Error(&fs.PathError{Op: "write", Path: "db", Err: syscall.ENOSPC}))
	}
	select {
	case err := <-b.Failed():
		if !strings.HasSuffix(err.Error(), "write db: no space left on device; free space on this disk and start again") {
			t.Errorf("the report is %q", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no report")
	}
	closed := make(chan struct{})
	go func() { b.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("closing a failed store hangs")
	}
}

func TestUnreachableEtcdIsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := External{Servers: []string{"http://127.0.0.1:1"}}.Connect(ctx, clock.RealClock{}, DefaultRetention)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "--etcd-servers") {
		t.Errorf("got %v", err)
	}
}
