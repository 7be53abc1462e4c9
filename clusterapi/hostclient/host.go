// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostclient runs "kindred machine" on the host of the manager, from the manager's container: it enters the namespaces of the
// container runtime, whose processes a Pod with hostPID sees.
package hostclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/semver"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// DefaultRoot is the directory of the machines on the host.
const DefaultRoot = "/var/lib/kindred-machines"

// Spec, File, Machine and Endpoint are as "kindred machine" reads and prints them.
type (
	// Spec is what a machine is made from.
	Spec struct {
		Name    string   `json:"name"`
		Owner   string   `json:"owner,omitempty"`
		Program string   `json:"program"`
		Args    []string `json:"args"`
		Memory  int64    `json:"memory,omitempty"`
		Files   []File   `json:"files,omitempty"`
	}
	// File is a file of a machine.
	File struct {
		Path    string `json:"path"`
		Mode    uint32 `json:"mode,omitempty"`
		Content []byte `json:"content"`
	}
	// Machine is a machine on the host. Its Phase is Running, Dead or Off; its Ends are those of Kindred since it last ran for a while.
	Machine struct {
		Name    string `json:"name"`
		Owner   string `json:"owner,omitempty"`
		Address string `json:"address"`
		Phase   string `json:"phase"`
		Ends    Ends   `json:"ends,omitzero"`
	}
	// Ends are the number of times that Kindred has ended, and the exit status or signal of the last one.
	Ends struct {
		Count int    `json:"count"`
		Last  string `json:"last,omitempty"`
	}
	// Endpoint is an address that leads to servers. The host answers with the Network of its machines, of which the address is.
	Endpoint struct {
		Name    string   `json:"name"`
		Owner   string   `json:"owner,omitempty"`
		Address string   `json:"address,omitempty"`
		Port    int32    `json:"port"`
		Servers []string `json:"servers,omitempty"`
		Network string   `json:"network,omitempty"`
	}
)

// Phases of a machine.
const (
	Running = "Running"
	Dead    = "Dead"
)

// Host runs commands on the host.
type Host struct {
	// Root is the directory of the machines.
	Root string
	// Program is the path of kindred on the host that is run. Install sets it.
	Program string
	// container is the program in this container.
	container string
	mu        sync.Mutex
	// installed is set once the host had the same.
	installed bool
	// Clock decides how long a list of the machines is used.
	Clock clock.PassiveClock
	// listing guards the machines of the last list; nil after a change.
	listing  sync.Mutex
	listed   []Machine
	listedAt time.Time
	// Namespaces are those of the host; nil if this process is in them.
	Namespaces *Namespaces
}

// Namespaces are those of the host that a command is run in.
type Namespaces struct {
	mount, network *os.File
}

// RuntimeNamespaces returns the namespaces of the container runtime, which are the host's. Its shim is the parent of the first process of
// a container, which this must be. Those of the host's first process would do as well, but that may have capabilities that
// the runtime's processes lack, and is closed to them then (ptrace(2), access mode checking).
func RuntimeNamespaces() (*Namespaces, error) {
	parent := os.Getppid()
	if parent == 0 {
		return nil, errors.New("the process that has started this container is not seen; the manager needs hostPID")
	}
	var n Namespaces
	for name, file := range map[string]**os.File{"mnt": &n.mount, "net": &n.network} {
		var err error
		if *file, err = os.Open(fmt.Sprintf("/proc/%d/ns/%s", parent, name)); err != nil {
			return nil, fmt.Errorf("the namespaces of the host: %w; the manager needs hostPID and a privileged container", err)
		}
	}
	return &n, nil
}

// Install copies the program of the container to the host, where it is that of a version, and of the commands that are run from now on.
// It is installed again if the host loses it, as by "kindred reset" of another cluster.
func (h *Host) Install(program, version string) error {
	h.container, h.Program = program, h.program(version)
	return h.ensureInstalled()
}

func (h *Host) ensureInstalled() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.inside(func() error {
		_, err := os.Stat(h.Program)
		return err
	})
	if err == nil && h.installed || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := os.ReadFile(h.container)
	if err != nil {
		return err
	}
	if err := h.inside(func() error { return installFile(h.Program, content) }); err != nil {
		return fmt.Errorf("install kindred on the host: %w", err)
	}
	h.installed = true
	return nil
}

// installFile writes a program unless it is there.
func installFile(path string, content []byte) error {
	if existing, err := os.ReadFile(path); err == nil && bytes.Equal(existing, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, 0o755); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// program is the path of kindred in a version.
func (h *Host) program(version string) string {
	return filepath.Join(h.Root, "bin", version, "kindred")
}

// ProgramOf returns the path of kindred in a version. It reports whether the host has it.
func (h *Host) ProgramOf(version string) (path string, found bool, err error) {
	if !semver.IsValid(version) {
		return "", false, nil
	}
	if err := h.ensureInstalled(); err != nil {
		return "", false, err
	}
	path = h.program(version)
	err = h.inside(func() error {
		_, err := os.Stat(path)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return path, false, nil
	}
	return path, err == nil, err
}

// Versions returns the versions that the host has.
func (h *Host) Versions() (versions []string, err error) {
	err = h.inside(func() error {
		found, err := os.ReadDir(filepath.Join(h.Root, "bin"))
		for _, entry := range found {
			versions = append(versions, entry.Name())
		}
		return err
	})
	return versions, err
}

// Apply makes a machine unless it exists.
func (h *Host) Apply(ctx context.Context, spec Spec) (Machine, error) {
	defer h.changed()
	var m Machine
	err := h.run(ctx, spec, &m, "apply")
	return m, err
}

// listPeriod is the maximum age of a list that is used again. Each list runs a process, and a change of a Cluster makes the controller look at
// all of its machines.
const listPeriod = time.Second

// list returns all machines, as they were within listPeriod, and since the last change by this process.
func (h *Host) list(ctx context.Context) ([]Machine, error) {
	h.listing.Lock()
	defer h.listing.Unlock()
	now := h.Clock.Now()
	if h.listed != nil && now.Sub(h.listedAt) < listPeriod {
		return h.listed, nil
	}
	all := []Machine{}
	if err := h.run(ctx, nil, &all, "list", "--output", "json"); err != nil {
		return nil, err
	}
	h.listed, h.listedAt = all, now
	return all, nil
}

// changed makes the next list a new one.
func (h *Host) changed() {
	h.listing.Lock()
	defer h.listing.Unlock()
	h.listed = nil
}

// Get returns a machine as it was within listPeriod. It reports whether there is one.
func (h *Host) Get(ctx context.Context, name string) (Machine, bool, error) {
	all, err := h.list(ctx)
	if err != nil {
		return Machine{}, false, err
	}
	for _, m := range all {
		if m.Name == name {
			return m, true, nil
		}
	}
	return Machine{}, false, nil
}

// Delete ends and removes a machine.
func (h *Host) Delete(ctx context.Context, name string) error {
	defer h.changed()
	return h.run(ctx, nil, nil, "delete", name)
}

// SetEndpoint makes or changes an endpoint.
func (h *Host) SetEndpoint(ctx context.Context, e Endpoint) (Endpoint, error) {
	return e, h.run(ctx, e, &e, "endpoint", "set")
}

// DeleteEndpoint removes an endpoint.
func (h *Host) DeleteEndpoint(ctx context.Context, name string) error {
	return h.run(ctx, nil, nil, "endpoint", "delete", name)
}

// run runs "kindred machine" with a request on its standard input, and decodes its answer.
func (h *Host) run(ctx context.Context, request, answer any, args ...string) error {
	if err := h.ensureInstalled(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, h.Program, append([]string{"machine", "--machines-dir", h.Root}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &said, "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	if request != nil {
		text, err := json.Marshal(request)
		if err != nil {
			return err
		}
		cmd.Stdin = bytes.NewReader(text)
	}
	if err := h.inside(cmd.Start); err != nil {
		return fmt.Errorf("run %s on the host: %w", h.Program, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("the answer of kindred machine %s: %w", args[0], err)
	}
	return nil
}

// inside calls a function in the namespaces of the host. It has a thread for itself, which ends with it: a thread that has a mount
// namespace of its own cannot return to the others. A process that the function starts begins in these namespaces.
func (h *Host) inside(do func() error) error {
	if h.Namespaces == nil {
		return do()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- h.enter(do)
	}()
	return <-done
}

func (h *Host) enter(do func() error) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for _, n := range []struct {
		file *os.File
		kind int
	}{{h.Namespaces.network, unix.CLONE_NEWNET}, {h.Namespaces.mount, unix.CLONE_NEWNS}} {
		if err := unix.Setns(int(n.file.Fd()), n.kind); err != nil {
			return fmt.Errorf("enter the namespaces of the host: %w; the manager needs hostPID and a privileged container", err)
		}
	}
	return do()
}
