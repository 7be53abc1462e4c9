// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/csi/csitest"
)

// recorder is a handler that records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
	fail  error
}

func (r *recorder) add(call string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	return r.fail
}

func (r *recorder) Validate(string, string, []string) error { return nil }
func (r *recorder) Register(_ context.Context, name, _ string, _ []string) error {
	return r.add("register " + name)
}
func (r *recorder) Deregister(_ context.Context, name, _ string) { _ = r.add("deregister " + name) }

func (r *recorder) until(t *testing.T, want ...string) {
	t.Helper()
	var calls []string
	for range 500 {
		r.mu.Lock()
		calls = append([]string(nil), r.calls...)
		r.mu.Unlock()
		if len(calls) >= len(want) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Fatalf("calls (-want +got):\n%s", diff)
	}
}

func run(t *testing.T, dir string, handlers map[string]Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(Options{Dir: dir, Handlers: handlers, Clock: clock.RealClock{}}).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestRegistration: drivers register whether their socket is there before the agent or after it, also in a
// directory; a socket that is created again is another driver; one that is removed is none.
func TestRegistration(t *testing.T) {
	dir := t.TempDir()
	handler := &recorder{}
	first, second := csitest.New(t, "first"), csitest.New(t, "second")
	path, stop := first.Announce(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, map[string]Handler{registerapi.CSIPlugin: handler})
	handler.until(t, "register first")
	if err := os.Mkdir(filepath.Join(dir, "nested"), 0o755); err != nil {
		t.Fatal(err)
	}
	second.Announce(t, filepath.Join(dir, "nested"))
	handler.until(t, "register first", "register second")
	stop() // removes the socket
	handler.until(t, "register first", "register second", "deregister first")
	if again, _ := first.Announce(t, dir); again != path {
		t.Fatalf("at %s, not %s", again, path)
	}
	handler.until(t, "register first", "register second", "deregister first", "register first")
	for range 100 {
		if s := first.Registered(); s != nil && s.PluginRegistered {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the driver was told %v", first.Registered())
}

// TestRefusedRegistration: the driver is told why, and the registration is retried.
func TestRefusedRegistration(t *testing.T) {
	dir := t.TempDir()
	handler := &recorder{fail: errors.New("not now")}
	driver := csitest.New(t, "d")
	driver.Announce(t, dir)
	run(t, dir, map[string]Handler{registerapi.CSIPlugin: handler})
	handler.until(t, "register d")
	for range 100 {
		if driver.Registered() != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	want := "RegisterPlugin error -- plugin registration failed with err: not now"
	if s := driver.Registered(); s == nil || s.PluginRegistered || s.Error != want {
		t.Errorf("the driver was told %v", s)
	}
	handler.mu.Lock()
	handler.fail = nil
	handler.mu.Unlock()
	handler.until(t, "register d", "register d")
}

func TestUnknownType(t *testing.T) {
	dir := t.TempDir()
	driver := csitest.New(t, "d")
	path, _ := driver.Announce(t, dir)
	run(t, dir, nil)
	for range 100 {
		if driver.Registered() != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	want := "RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket " + path
	if s := driver.Registered(); s == nil || s.Error != want {
		t.Errorf("the driver was told %v", s)
	}
}
