// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	guaranteed = "{resources: {limits: {cpu: 200m, memory: 64Mi}}}"
	burstable  = "{resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {memory: 64Mi}}}"
	none       = "{}"
)

// cgroup returns the directory of a pod's cgroup.
func (m *machine) cgroup(t *testing.T, name string) string {
	t.Helper()
	uid := m.field(t, name, ".metadata.uid")
	return m.sh(t, fmt.Sprintf("find /sys/fs/cgroup -type d -name '*pod%s' -o -type d -name '*pod%s.slice'", uid, strings.ReplaceAll(uid, "-", "_")))
}

// containerID returns the ID of a pod's only container.
func (m *machine) containerID(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimPrefix(m.field(t, name, ".status.containerStatuses[0].containerID"), "containerd://")
}

// container returns the directory of the cgroup of a pod's only container.
func (m *machine) container(t *testing.T, name string) string {
	t.Helper()
	return m.sh(t, fmt.Sprintf("find %s -type d -name '*%s*'", m.cgroup(t, name), m.containerID(t, name)))
}

// limits checks the files of a cgroup.
func (m *machine) limits(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	files := slices.Sorted(maps.Keys(want))
	values := strings.Split(m.sh(t, "cd "+dir+"; head -qn1 "+strings.Join(files, " ")), "\n")
	for i, file := range files {
		is(t, path.Join(dir, file), values[i], want[file])
	}
}

func (m *machine) testCgroups(t *testing.T, driver string) {
	m.apply(t, pod("guaranteed", "{}", guaranteed)+pod("burstable", "{}", burstable)+pod("besteffort", "{}", none))
	m.ready(t, "guaranteed", "burstable", "besteffort")

	m.limits(t, m.cgroup(t, "guaranteed"), map[string]string{"cpu.max": "20000 100000", "cpu.weight": "8", "memory.max": "67108864", "pids.max": "200"})
	m.limits(t, m.container(t, "guaranteed"), map[string]string{"cpu.max": "20000 100000", "cpu.weight": "8", "memory.max": "67108864"})
	m.limits(t, m.cgroup(t, "burstable"), map[string]string{"cpu.max": "max 100000", "cpu.weight": "4", "memory.max": "67108864", "pids.max": "200"})
	m.limits(t, path.Dir(m.cgroup(t, "burstable")), map[string]string{"cpu.weight": "4"})
	m.limits(t, m.cgroup(t, "besteffort"), map[string]string{"cpu.max": "max 100000", "cpu.weight": "1", "memory.max": "max", "pids.max": "200"})
	m.limits(t, path.Dir(m.cgroup(t, "besteffort")), map[string]string{"cpu.weight": "1"})

	id := m.containerID(t, "burstable")
	if driver == "cgroupfs" {
		is(t, "the container's cgroup", path.Base(m.container(t, "burstable")), id)
	} else {
		is(t, "the container's cgroup", path.Base(m.container(t, "burstable")), "cri-containerd-"+id+".scope")
		unit := path.Base(m.cgroup(t, "guaranteed"))
		has(t, "the class in the slice's name", path.Base(m.cgroup(t, "burstable")), "-pods-burstable-pod")
		is(t, "properties of "+unit, m.sh(t, "systemctl show -p CPUQuotaPerSecUSec -p MemoryMax -p TasksMax --value "+unit+" | sort | xargs"), "200 200ms 67108864")
		// systemd writes the limits that it knows when units are loaded again.
		m.sh(t, "systemctl daemon-reload")
		m.limits(t, m.cgroup(t, "guaranteed"), map[string]string{"cpu.max": "20000 100000", "memory.max": "67108864", "pids.max": "200"})
	}
	has(t, "containerd's cgroup", m.sh(t, "cat /proc/$(pgrep -x containerd)/cgroup"), "/runtime")
}

func (m *machine) testResize(t *testing.T) {
	m.apply(t, pod("guaranteed", "{}", guaranteed))
	m.ready(t, "guaranteed")
	id := m.containerID(t, "guaranteed")
	m.kubectl(t, "patch", "pod", "guaranteed", "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"300m","memory":"96Mi"},"limits":{"cpu":"300m","memory":"96Mi"}}}]}}`)
	await(t, "the resize of the pod", func() error {
		if got := m.field(t, "guaranteed", ".status.containerStatuses[0].resources.limits"); !strings.Contains(got, "300m") || !strings.Contains(got, "96Mi") {
			return fmt.Errorf("its limits are %s", got)
		}
		return nil
	})
	want := map[string]string{"cpu.max": "30000 100000", "memory.max": "100663296"}
	m.limits(t, m.cgroup(t, "guaranteed"), want)
	m.limits(t, m.container(t, "guaranteed"), want)
	is(t, "the container after the resize", m.containerID(t, "guaranteed"), id)
}

// testRestart stops, starts and kills the service. Containers notice nothing.
func (m *machine) testRestart(t *testing.T) {
	m.apply(t, pod("burstable", "{}", burstable))
	m.ready(t, "burstable")
	id := m.containerID(t, "burstable")
	process := "cat " + m.container(t, "burstable") + "/cgroup.procs"
	before := m.sh(t, process)
	m.sh(t, "systemctl stop kindred")
	is(t, "processes while the service is stopped", m.sh(t, process), before)
	m.sh(t, "systemctl start kindred")
	m.ready(t, "burstable")
	m.sh(t, "systemctl kill -s KILL kindred; sleep 3; systemctl start kindred")
	m.ready(t, "burstable")
	is(t, "processes after two restarts", m.sh(t, process), before)
	is(t, "the container after two restarts", m.containerID(t, "burstable"), id)
	is(t, "restarts of the container", m.field(t, "burstable", ".status.containerStatuses[0].restartCount"), "0")

	m.apply(t, pod("later", "{}", burstable))
	m.ready(t, "later")
	// The level has the requests of both pods, of which another process of the agent started one.
	m.limits(t, path.Dir(m.cgroup(t, "later")), map[string]string{"cpu.weight": "8"})
}

// testReset removes the cluster with a running pod. Nothing of it is left in the machine.
func (m *machine) testReset(t *testing.T) {
	m.apply(t, pod("left", "{}", none))
	m.ready(t, "left")
	m.sh(t, "kindred uninstall; kindred reset")
	is(t, "cgroups", m.sh(t, "find /sys/fs/cgroup -maxdepth 1 -name 'kindred*'"), "")
	is(t, "units", m.sh(t, "systemctl list-units --all --plain --no-legend 'kindred*' 'cri-containerd*'"), "")
	is(t, "processes", m.sh(t, "pgrep -a containerd || true"), "")
	is(t, "mounts", m.sh(t, "grep -c kindred /proc/mounts || true"), "0")
}
