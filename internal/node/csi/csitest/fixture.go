// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csitest

import (
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
)

// New serves a driver until the test ends.
func New(t *testing.T, name string) *Driver {
	t.Helper()
	dir := t.TempDir()
	d := NewDriver(name, filepath.Join(dir, "csi.sock"), filepath.Join(dir, "data"))
	d.Start(t)
	t.Cleanup(d.Stop)
	return d
}

// Start serves the driver again after Stop.
func (d *Driver) Start(t *testing.T) {
	t.Helper()
	d.server = d.serve(t, d.Endpoint)
}

// Stop ends the driver: calls that wait fail, as those of a driver that dies.
func (d *Driver) Stop() { d.server.Stop() }

// Announce creates the driver's registration socket in a directory.
func (d *Driver) Announce(t *testing.T, dir string) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(dir, d.Name+"-reg.sock")
	server := d.serve(t, path)
	return path, server.Stop
}

func (d *Driver) serve(t *testing.T, path string) *grpc.Server {
	t.Helper()
	server, err := d.Serve(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}
