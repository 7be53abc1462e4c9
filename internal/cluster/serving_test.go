// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/internal/datadir"
)

// TestListenFirst: if no port is configured, the last port is used again if it is free.
func TestListenFirst(t *testing.T) {
	dir, err := datadir.New(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	config := Config{Dir: dir, BindAddress: net.IPv4(127, 0, 0, 1)}
	open := func() net.Listener {
		t.Helper()
		listener, err := listenFirst(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		return listener
	}
	first := open()
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	if err := dir.WriteInstance(datadir.Instance{Server: fmt.Sprintf("https://127.0.0.1:%d", port(first))}); err != nil {
		t.Fatal(err)
	}
	second := open()
	if port(second) == port(first) {
		t.Fatalf("two listeners on port %d", port(first))
	}
	_ = first.Close()
	if again := open(); port(again) != port(first) {
		t.Errorf("port %d, want %d as last time", port(again), port(first))
	}

	config.Port = port(second)
	if _, err := listenFirst(t.Context(), config); err == nil || !strings.Contains(err.Error(), "--secure-port") {
		t.Errorf("a port in use: %v", err)
	}
	config.BindAddress, config.Port = net.IPv4(203, 0, 113, 9), 0
	if _, err := listenFirst(t.Context(), config); err == nil || !strings.Contains(err.Error(), "--bind-address") {
		t.Errorf("an address of another machine: %v", err)
	}
}
