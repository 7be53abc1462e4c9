// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// testMachines makes a machine of the host, which is the virtual machine: with namespaces of its own, and a cgroup that limits its memory and has those of
// its pods. Nothing of it is left when it is deleted, and the next one of this name starts although a cgroup of a start that was interrupted is there.
func (m *machine) testMachines(t *testing.T) {
	m.sh(t, "mountpoint -q /media || mount -r /dev/vdb /media\ncp /media/kindred /usr/local/bin/kindred")
	const spec = `{"name": "one", "memory": 1073741824, "program": "/usr/local/bin/kindred", "args": ["up", "--server"]}`
	m.sh(t, "kindred machine apply <<'END'\n"+spec+"\nEND")
	m.inMachine(t, "kindred kubectl wait --for=condition=Ready --timeout=1s node/one")
	m.inMachine(t, "kindred image load /media/busybox.tar")
	m.inMachine(t, "kindred kubectl apply -f - <<'END'\n"+pod("guaranteed", "{}", guaranteed)+"END")
	m.inMachine(t, "kindred kubectl wait --for=condition=Ready --timeout=1s pod/guaranteed")

	group := m.sh(t, "find /sys/fs/cgroup -type d -path '*/kindred-machines-*/one'")
	m.limits(t, group, map[string]string{"memory.max": "1073741824"})
	m.limits(t, m.sh(t, "find "+group+" -type d -name 'pod*-*'"), map[string]string{"cpu.max": "20000 100000", "memory.max": "67108864"})
	process := m.inMachine(t, "kindred kubectl exec guaranteed -- cat /proc/1/cgroup")
	is(t, "the cgroup that a container sees", process, "0::/")

	container := "kindred kubectl get pod guaranteed -o jsonpath={.status.containerStatuses[0].containerID}"
	before := m.inMachine(t, container)
	m.sh(t, "pkill -KILL -f '^/run/kindred-machine/kindred up'")
	m.inMachine(t, "kindred kubectl wait --for=condition=Ready --timeout=1s node/one")
	is(t, "the container after Kindred was killed", m.inMachine(t, container), before)

	var machines []struct{ PID int }
	if err := json.Unmarshal([]byte(m.sh(t, "kindred machine list -o json")), &machines); err != nil || len(machines) != 1 {
		t.Fatalf("machines: %+v, %v", machines, err)
	}
	m.sh(t, fmt.Sprintf("kill -KILL %d", machines[0].PID))
	await(t, "the machine is dead", func() error {
		now := m.sh(t, "kindred machine list")
		if !strings.Contains(now, "Dead") {
			return fmt.Errorf("%s", now)
		}
		return nil
	})
	m.sh(t, "kindred machine delete one")
	is(t, "cgroups of machines", m.sh(t, "find /sys/fs/cgroup -maxdepth 1 -name 'kindred*'"), "")

	m.sh(t, "mkdir -p "+group+"/init; for d in /sys/fs/cgroup "+group+"/.. "+group+"; do echo +memory >$d/cgroup.subtree_control; done")
	m.sh(t, "kindred machine apply <<'END'\n"+spec+"\nEND")
	m.inMachine(t, "kindred kubectl wait --for=condition=Ready --timeout=1s node/one")
	m.sh(t, "kindred machine delete one")
	is(t, "cgroups", m.sh(t, "find /sys/fs/cgroup -maxdepth 1 -name 'kindred*'"), "")
	is(t, "processes", m.sh(t, "pgrep -a containerd || true"), "")
	is(t, "mounts", m.sh(t, "grep -c kindred-machine /proc/mounts || true"), "0")
}

// inMachine runs a command line in the machine one until it succeeds, and returns what it prints.
func (m *machine) inMachine(t *testing.T, command string) (out string) {
	t.Helper()
	await(t, command, func() (err error) {
		out, err = m.shell(t.Context(), "kindred machine exec one -- "+command)
		return err
	})
	return out
}
