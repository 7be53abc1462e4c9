// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kindred-project/kindred/internal/durable"
	"github.com/kindred-project/kindred/internal/links"
)

// Spec is what a machine is made from.
type Spec struct {
	// Name is a DNS label that no other machine of the host has. It is the machine's host name.
	Name string `json:"name"`
	// Owner identifies who made the machine: the hash of the authority of a cluster that manages it.
	Owner string `json:"owner,omitempty"`
	// Program is the path of Kindred, and Args are its arguments.
	Program string   `json:"program"`
	Args    []string `json:"args"`
	// Memory limits the machine's memory, in bytes; 0 is no limit.
	Memory int64 `json:"memory,omitempty"`
}

// File is a file that a machine has when it starts for the first time.
type File struct {
	// Path is absolute, below /etc or /var/lib, which each machine has for itself.
	Path string `json:"path"`
	// Mode are the permission bits; 0600 if 0.
	Mode    uint32 `json:"mode,omitempty"`
	Content []byte `json:"content"`
}

// Phase is the state of a machine.
type Phase string

const (
	// Running machines have their first process.
	Running Phase = "Running"
	// Dead machines have lost it: it was killed, or ended. Their files are there.
	Dead Phase = "Dead"
	// Off is a machine that has not been started since the host was.
	Off Phase = "Off"
)

// Machine is a machine of the host.
type Machine struct {
	Spec
	// Address is its address, with the length of the network's prefix.
	Address netip.Prefix `json:"address"`
	// Gateway is the host's address for it.
	Gateway netip.Addr `json:"gateway"`
	// Boot identifies the start of the host during which it was started last; empty before the first start.
	Boot string `json:"boot,omitempty"`
	// Phase, the PID that its first process has on the host, and the ends of Kindred are not stored.
	Phase Phase `json:"phase,omitempty"`
	PID   int   `json:"pid,omitempty"`
	Ends  Ends  `json:"ends,omitzero"`
}

func (h *Host) dir(name string) string         { return h.path("machines", name) }
func (h *Host) machineFile(name string) string { return filepath.Join(h.dir(name), "machine.json") }

// Log is the output of Kindred in a machine.
func (h *Host) Log(name string) string { return filepath.Join(h.dir(name), "log") }

// DataDir is the directory on the host that a machine has as /var/lib/kindred.
func (h *Host) DataDir(name string) string { return filepath.Join(h.dir(name), "lib", "kindred") }

// Get returns a machine. It reports whether there is one.
func (h *Host) Get(name string) (Machine, bool, error) {
	var m Machine
	if err := checkName("a machine", name); err != nil {
		return m, false, err
	}
	found, err := readJSON(h.machineFile(name), &m)
	if err != nil || !found {
		return m, false, err
	}
	if m.Phase, m.PID, err = h.phase(m); err != nil || m.Phase != Running {
		return m, true, err
	}
	m.Ends, err = readEnds(runningFile(h.dir(name)))
	return m, true, err
}

// List returns all machines, by name.
func (h *Host) List() ([]Machine, error) {
	names, err := entries(h.path("machines"))
	if err != nil {
		return nil, err
	}
	var all []Machine
	for _, name := range names {
		m, found, err := h.Get(name)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, m)
		}
	}
	return all, nil
}

// ErrOther is wrapped by the error about a machine that exists and is another one.
var ErrOther = errors.New("another machine has this name")

// Apply makes a machine and starts it, unless it exists. An existing one gets the owner; it is started if it is Off, and stays as it
// is if it is Dead. files are written before the first start only.
func (h *Host) Apply(ctx context.Context, spec Spec, files []File) (Machine, error) {
	if err := spec.check(files); err != nil {
		return Machine{}, err
	}
	var m Machine
	err := h.changing(func() error {
		network, err := h.ensureNetwork(ctx)
		if err != nil {
			return err
		}
		existing, found, err := h.Get(spec.Name)
		if err != nil {
			return err
		}
		if found {
			m, err = h.keep(ctx, network, existing, spec)
			return err
		}
		m, err = h.create(ctx, network, spec, files)
		return err
	})
	return m, err
}

func (s *Spec) check(files []File) error {
	if err := checkName("a machine", s.Name); err != nil {
		return err
	}
	if info, err := os.Stat(s.Program); err != nil || !info.Mode().IsRegular() || !filepath.IsAbs(s.Program) {
		return fmt.Errorf("machine %s: %q is not the absolute path of a program", s.Name, s.Program)
	}
	if s.Memory < 0 {
		return fmt.Errorf("machine %s: a memory limit of %d bytes", s.Name, s.Memory)
	}
	for _, f := range files {
		if clean := filepath.Clean(f.Path); clean != f.Path || ownDir(clean) == "" {
			return fmt.Errorf("machine %s: file %q is not below /etc or /var/lib", s.Name, f.Path)
		}
	}
	return nil
}

// keep applies a specification to a machine that exists.
func (h *Host) keep(ctx context.Context, n network, m Machine, spec Spec) (Machine, error) {
	if m.Program != spec.Program || !slices.Equal(m.Args, spec.Args) || m.Memory != spec.Memory {
		return m, fmt.Errorf("machine %s runs %s %s: %w", m.Name, m.Program, strings.Join(m.Args, " "), ErrOther)
	}
	if m.Owner != spec.Owner {
		m.Owner = spec.Owner
		if err := h.write(m); err != nil {
			return m, err
		}
	}
	if m.Phase != Off {
		return m, nil
	}
	return h.start(ctx, n, m)
}

// create makes a machine. What is left of an attempt that was interrupted has no machine.json, and is replaced.
func (h *Host) create(ctx context.Context, n network, spec Spec, files []File) (Machine, error) {
	if err := os.RemoveAll(h.dir(spec.Name)); err != nil {
		return Machine{}, err
	}
	address, err := h.freeAddress(n)
	if err != nil {
		return Machine{}, err
	}
	m := Machine{Spec: spec, Address: netip.PrefixFrom(address, n.Range.Bits()), Gateway: n.gateway()}
	if err := h.prepare(m, files); err != nil {
		return m, errors.Join(fmt.Errorf("machine %s: %w", m.Name, err), os.RemoveAll(h.dir(m.Name)))
	}
	if err := h.write(m); err != nil {
		return m, err
	}
	started, err := h.start(ctx, n, m)
	if err != nil {
		return m, errors.Join(err, h.remove(ctx, m))
	}
	return started, nil
}

func (h *Host) write(m Machine) error {
	m.Phase, m.PID = "", 0
	return writeJSON(h.machineFile(m.Name), m)
}

// ownDirs are the directories that each machine has for itself, and where they are in that of the machine.
var ownDirs = []struct{ at, dir string }{{"/etc", "etc"}, {"/var/lib", "lib"}}

// ownDir returns where a path of a machine is in its directory; "" if the machine shares it with the host.
func ownDir(path string) string {
	for _, own := range ownDirs {
		if below, found := strings.CutPrefix(path, own.at+"/"); found {
			return filepath.Join(own.dir, below)
		}
	}
	return ""
}

// prepare writes the files of a new machine.
func (h *Host) prepare(m Machine, files []File) error {
	for _, name := range []string{"etc", "work", "lib", "tmp", "varlog"} {
		if err := os.MkdirAll(filepath.Join(h.dir(m.Name), name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(h.dir(m.Name), "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	identity, err := identityFiles(m)
	if err != nil {
		return err
	}
	for _, f := range append(identity, files...) {
		path := filepath.Join(h.dir(m.Name), ownDir(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(f.Mode)
		if mode == 0 {
			mode = 0o600
		}
		if err := durable.WriteFile(path, f.Content, mode); err != nil {
			return err
		}
	}
	return nil
}

// Delete ends a machine and removes it with its files. A machine that does not exist is no error.
func (h *Host) Delete(ctx context.Context, name string) error {
	return h.changing(func() error {
		m, found, err := h.Get(name)
		if err != nil {
			return err
		}
		if !found {
			return os.RemoveAll(h.dir(name))
		}
		return h.remove(ctx, m)
	})
}

func (h *Host) remove(ctx context.Context, m Machine) error {
	if err := h.end(ctx, m); err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	if err := errors.Join(removeCgroup(ctx, h.cgroup(m.Name)), links.Remove(h.link(m.Name))); err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return os.RemoveAll(h.dir(m.Name))
}
