// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }

// shared is a directory with a program, an endpoint of the owner "one", and an endpoint and a machine of the owner "two".
func shared(t *testing.T) *Host {
	t.Helper()
	netns.Required(t)
	h, err := Open(filepath.Join(t.TempDir(), "machines"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "kindred")
	if err := os.WriteFile(program, []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := h.InstallProgram("v1.37.1", program); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"one", "two"} {
		e := Endpoint{Name: owner, Owner: owner, Port: 6443, Servers: []netip.Addr{netip.MustParseAddr("10.192.0.2")}}
		if _, err := h.SetEndpoint(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = links.Remove(h.bridge()) })
	m := Machine{Spec: Spec{Name: "machine", Owner: "two"}, Address: netip.MustParsePrefix("10.192.0.2/16")}
	if err := h.write(m); err != nil {
		t.Fatal(err)
	}
	return h
}

// has compares what a directory has: machines, endpoints and programs, as paths below it, and how many addresses the bridge has.
func (h *Host) has(t *testing.T, addresses int, want ...string) {
	t.Helper()
	var got []string
	for _, pattern := range []string{"bin/*/*", "endpoints/*", "machines/*"} {
		found, err := filepath.Glob(h.path(pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			relative, err := filepath.Rel(h.root, file)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, relative)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the directory (-want +got):\n%s", diff)
	}
	bridge, err := netlink.LinkByName(h.bridge())
	if err != nil {
		t.Fatal(err)
	}
	if all, err := netlink.AddrList(bridge, netlink.FAMILY_V4); err != nil || len(all) != addresses {
		t.Errorf("the bridge has %d addresses (%v), %v; want %d", len(all), all, err, addresses)
	}
}

func (h *Host) reset(t *testing.T, owner string, want ...string) {
	t.Helper()
	if removed, err := h.Reset(t.Context(), owner); err != nil || !slices.Equal(removed, want) {
		t.Errorf("reset of %s removes the machines %q, %v; want %q", owner, removed, err, want)
	}
}

// TestReset: an owner's machines and endpoints are removed. What all owners share stays while another one has an endpoint, and goes with the last one.
func TestReset(t *testing.T) {
	h := shared(t)
	if err := os.MkdirAll(filepath.Join(h.dir("interrupted"), "etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.has(t, 3, "bin/v1.37.1/kindred", "endpoints/one.json", "endpoints/two.json", "machines/interrupted", "machines/machine")
	h.reset(t, "stranger")
	h.has(t, 3, "bin/v1.37.1/kindred", "endpoints/one.json", "endpoints/two.json", "machines/machine")
	h.reset(t, "two", "machine")
	h.has(t, 2, "bin/v1.37.1/kindred", "endpoints/one.json")
	h.reset(t, "one")
	if _, err := os.Stat(h.root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	var absent netlink.LinkNotFoundError
	if _, err := netlink.LinkByName(h.bridge()); !errors.As(err, &absent) {
		t.Errorf("the bridge is left: %v", err)
	}
	h.reset(t, "one")
}

// TestResetAfterReboot: the host was started since the machines were made, so that the network is missing.
func TestResetAfterReboot(t *testing.T) {
	h := shared(t)
	if err := links.Remove(h.bridge()); err != nil {
		t.Fatal(err)
	}
	h.reset(t, "two", "machine")
	if all, err := h.Endpoints(); err != nil || len(all) != 1 || all[0].Name != "one" {
		t.Errorf("endpoints %+v, %v", all, err)
	}
	h.reset(t, "one")
	if _, err := os.Stat(h.root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// TestResetOfOtherFiles: a directory that is not one of machines is left as it is, one in which providers have installed programs is removed, and files
// beside machines stay.
func TestResetOfOtherFiles(t *testing.T) {
	netns.Required(t)
	for name, test := range map[string]struct{ files, left []string }{
		"another directory":  {[]string{"bin/tool", "machines/a/b", "notes"}, []string{"bin/tool", "machines/a/b", "notes"}},
		"other programs":     {[]string{"bin/tool"}, []string{"bin/tool"}},
		"programs":           {[]string{"bin/v1.37.1/kindred", "bin/v1.38.0/kindred"}, nil},
		"files beside those": {[]string{"bin/v1.37.1/kindred", "lock", "notes"}, []string{"notes"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Host{root: filepath.Join(t.TempDir(), "machines")}
			for _, file := range test.files {
				if err := errors.Join(os.MkdirAll(filepath.Dir(h.path(file)), 0o700), os.WriteFile(h.path(file), nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			h.reset(t, "one")
			var left []string
			err := filepath.WalkDir(h.root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && !entry.IsDir() {
					left = append(left, strings.TrimPrefix(path, h.root+"/"))
				}
				return err
			})
			if len(test.left) == 0 && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory is left: %v", err)
			}
			if diff := cmp.Diff(test.left, left); diff != "" {
				t.Errorf("files that are left (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHas(t *testing.T) {
	h := &Host{root: filepath.Join(t.TempDir(), "machines")}
	has := func(want ...string) {
		t.Helper()
		var got []string
		for _, owner := range []string{"", "one", "two"} {
			found, err := h.Has(owner)
			if err != nil {
				t.Fatal(err)
			}
			if found {
				got = append(got, owner)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("it has machines or endpoints of %q, want %q", got, want)
		}
	}
	has()
	if _, err := os.Stat(h.root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was created: %v", err)
	}
	if err := writeJSON(h.endpointFile("a"), Endpoint{Name: "a", Owner: "two"}); err != nil {
		t.Fatal(err)
	}
	has("two")
	if err := h.write(Machine{Spec: Spec{Name: "a", Owner: "one"}}); err != nil {
		t.Fatal(err)
	}
	has("one", "two")
}

// TestLock: one process has the lock, also if others wait for one that is removed with the directory.
func TestLock(t *testing.T) {
	h := &Host{root: filepath.Join(t.TempDir(), "machines")}
	var held atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				file, err := h.lock()
				if err != nil {
					t.Error(err)
					return
				}
				if others := held.Add(1) - 1; others > 0 {
					t.Errorf("%d others have the lock", others)
				}
				held.Add(-1)
				if err := errors.Join(h.removeRoot(), file.Close()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
