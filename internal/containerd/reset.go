// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/internal/mounts"
)

// Reset stops every container, shim and containerd of the data directory and removes their mounts, cgroups,
// bridge, firewall rules and files. It is idempotent and can be repeated after a failure. It does not need the
// programs to be installed.
//
// If containerd runs or can be started, Reset first removes pods through CRI, so that network plugins clean
// up. It removes the rest by force.
func Reset(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return err
	}
	orderly := o.removePods(ctx)
	if err := o.stop(ctx); err != nil {
		return errors.Join(orderly, err)
	}
	sockets := o.shimSockets()
	err := errors.Join(
		o.killShims(ctx),
		RemoveCgroups(ctx, o),
		mounts.DetachAt(o.Root),
		mounts.DetachAt(o.RunDir),
		removeNetwork(ctx, o.Names),
	)
	if err != nil {
		// Keep the files: the next Reset needs them.
		return errors.Join(orderly, err)
	}
	for _, path := range append(sockets, o.Root, o.RunDir, o.LogFile, o.LogFile+".1") {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// removePods removes all pods through CRI. If containerd has exited while shims still run, it is started for
// that.
func (o Options) removePods(ctx context.Context) error {
	containerds, err := findProcesses(isContainerd(o.config()))
	closeAll(containerds)
	if err != nil {
		return err
	}
	shims, err := findProcesses(isShim(o.socket()))
	closeAll(shims)
	if err != nil || len(containerds)+len(shims) == 0 {
		return err
	}
	endpoint := "unix://" + o.socket()
	if len(containerds) == 0 {
		r, err := Start(ctx, o)
		if err != nil {
			return err
		}
		endpoint = r.Endpoint
	}
	return RemovePods(ctx, endpoint, nil)
}

// removeLimit is the timeout for the removal of one pod through CRI.
const removeLimit = 30 * time.Second

// RemovePods stops and removes the sandboxes with these labels and all their containers. On a shared runtime,
// [ClusterLabel] selects those of one cluster.
func RemovePods(ctx context.Context, endpoint string, labels map[string]string) error {
	conn, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	answer, err := cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels},
	})
	if err != nil {
		return fmt.Errorf("listing the pods of %s: %w", endpoint, plain(err))
	}
	var group errgroup.Group
	group.SetLimit(16)
	for _, sandbox := range answer.GetItems() {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, removeLimit)
			defer cancel()
			if err := removePod(ctx, cri, sandbox.Id); err != nil {
				return fmt.Errorf("removing pod %s/%s: %w", sandbox.GetMetadata().GetNamespace(), sandbox.GetMetadata().GetName(), plain(err))
			}
			return nil
		})
	}
	return group.Wait()
}

// removePod kills the containers of a pod, and removes it. A runtime may give the containers of a sandbox that it
// stops time to end: CRI-O gives them 30 s.
func removePod(ctx context.Context, cri runtimeapi.RuntimeServiceClient, id string) error {
	answer, err := cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		PodSandboxId: id, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return err
	}
	for _, container := range answer.GetContainers() {
		if _, err := cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container.Id}); err != nil {
			return err
		}
	}
	if _, err := cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	_, err = cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

func (o Options) killShims(ctx context.Context) error {
	shims, err := findProcesses(isShim(o.socket()))
	if err != nil {
		return err
	}
	defer closeAll(shims)
	signalAll(shims, unix.SIGKILL)
	return waitExited(ctx, o.Clock, shims, stopGrace)
}

// shimSockets returns the sockets of shims. They are in a directory that all containerds of a machine share.
// containerd 1.x stores a shim's address in the file address, 2.x in bootstrap.json.
func (o Options) shimSockets() []string {
	bundles := filepath.Join(o.state(), "io.containerd.runtime.v2.task", "*", "*")
	var sockets []string
	add := func(address string) {
		path, isUnix := strings.CutPrefix(strings.TrimSpace(address), "unix://")
		if isUnix && filepath.IsAbs(path) {
			sockets = append(sockets, path)
		}
	}
	for _, content := range readAll(filepath.Join(bundles, "address")) {
		add(string(content))
	}
	for _, content := range readAll(filepath.Join(bundles, "bootstrap.json")) {
		var bootstrap struct{ Address string }
		if json.Unmarshal(content, &bootstrap) == nil {
			add(bootstrap.Address)
		}
	}
	return sockets
}

// readAll returns the content of the readable files that match a pattern.
func readAll(pattern string) [][]byte {
	files, _ := filepath.Glob(pattern)
	var contents [][]byte
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			contents = append(contents, b)
		}
	}
	return contents
}

// RemoveCgroups kills the processes in the data directory's cgroups and removes the cgroups, in all hierarchies. [Reset] does it; pods in another
// container runtime have theirs here as well.
func RemoveCgroups(ctx context.Context, o Options) error {
	o = o.withDefaults()
	hierarchies, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		for _, name := range []string{o.Names.Cgroup, o.Names.Slice} {
			root := filepath.Join(h.Mountpoint, name)
			err := poll(ctx, o.Clock, stopGrace, func() error { return removeCgroup(root) })
			if err != nil {
				return fmt.Errorf("removing cgroup %s: %w", root, err)
			}
		}
	}
	return stopSlice(ctx, o.Names.Slice)
}

// stopSlice has systemd forget a slice, and those below it, which would otherwise stay loaded without processes.
func stopSlice(ctx context.Context, slice string) error {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil
	}
	bus, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("stop %s: %w", slice, err)
	}
	defer bus.Close()
	systemd := bus.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	err = systemd.CallWithContext(ctx, "org.freedesktop.systemd1.Manager.StopUnit", 0, slice, "replace").Err
	var refused dbus.Error
	if errors.As(err, &refused) && refused.Name == "org.freedesktop.systemd1.NoSuchUnit" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", slice, err)
	}
	return nil
}

// removeCgroup makes one attempt to kill the processes in a tree of cgroups and to remove it, children first.
// A killed process stays in its cgroup until it is reaped.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	for _, pid := range processesOf(dir) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func processesOf(cgroup string) []int {
	b, _ := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	var pids []int
	for _, field := range strings.Fields(string(b)) {
		var pid int
		if _, err := fmt.Sscan(field, &pid); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cniResults is where the CNI library stores the results of attachments. containerd cannot configure it.
const cniResults = "/var/lib/cni/results"

// removeResults removes the results of the data directory's sandboxes in every network. Those in the loopback
// network have the sandbox's ID, but not the name of the data directory's network.
func removeResults(n Names) error {
	files, _ := filepath.Glob(filepath.Join(cniResults, n.Network+"-*-*"))
	for _, file := range files {
		sandbox, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), n.Network+"-"), "-")
		results, _ := filepath.Glob(filepath.Join(cniResults, "*-"+sandbox+"-*"))
		for _, file := range results {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func removeNetwork(ctx context.Context, n Names) error {
	removeFirewall(ctx, n)
	if err := removeResults(n); err != nil {
		return err
	}
	if err := links.Remove(n.Bridge); err != nil {
		return fmt.Errorf("removing bridge %s: %w", n.Bridge, err)
	}
	return nil
}
