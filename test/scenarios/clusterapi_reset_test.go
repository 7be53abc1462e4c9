// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostTraces returns what machines of all directories have on this host: links, cgroups, tables of nftables, mounts and processes.
func hostTraces(t *testing.T) []string {
	t.Helper()
	all := slices.Concat(hostLinks(t), hostCgroups(t), machineTables(t), machineMounts(t))
	for pid := range machineProcesses(t) {
		all = append(all, "process "+pid)
	}
	slices.Sort(all)
	return all
}

// machineTables returns the tables of nftables of machines.
func machineTables(t *testing.T) (found []string) {
	t.Helper()
	out, err := exec.Command("nft", "list", "tables").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list tables: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "kindred-machines-") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// machineMounts returns the mounts of this process's mount namespace that are in a directory of machines, or show files of one.
func machineMounts(t *testing.T) (found []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "/machines/") || strings.Contains(line, "kindred-machine") {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	return found
}

// machineNamespaces are the namespaces of a process that a machine has for itself.
type machineNamespaces struct{ network, mount string }

// machineProcesses returns the processes in the cgroups of machines, by PID, except for those that have ended.
func machineProcesses(t *testing.T) map[string]machineNamespaces {
	t.Helper()
	found := map[string]machineNamespaces{}
	for pid, start := range processes(t) {
		groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil || start == "" || !strings.Contains(string(groups), "kindred-machines-") {
			continue
		}
		found[pid] = namespacesOf(pid)
	}
	return found
}

// namespacesOf returns the namespaces of a process; none if it has ended.
func namespacesOf(pid string) (n machineNamespaces) {
	n.network, _ = os.Readlink("/proc/" + pid + "/ns/net")
	n.mount, _ = os.Readlink("/proc/" + pid + "/ns/mnt")
	return n
}

// processes returns the time at which each process was started, by PID; none for processes that have ended, and whose parent has not noticed.
func processes(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The fields follow the name, which may have spaces: the first is the state, and the 20th the time (proc_pid_stat(5)).
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		all[filepath.Base(filepath.Dir(file))] = fields[19]
	}
	return all
}

// resetRemoves kills the management cluster, whose workload cluster goes on, and resets it, which removes that as well: the host has afterwards what it
// had before the first machine.
func (k *kindredManagement) resetRemoves(before []string) {
	k.Helper()
	k.create("left", 1, 1)
	k.nodesReady("left", 2, provisioning)
	k.cluster.kill(k.T)
	for _, m := range k.host.list() {
		if m.Phase != "Running" {
			k.Errorf("machine %s is %s after the end of the management cluster", m.Name, m.Phase)
		}
	}
	k.hasTraces(before)
	inside, started := machineProcesses(k.T), processes(k.T)
	if r := k.cluster.run("reset", "--machines-dir", k.host.dir); r.code != 0 || strings.Count(r.out, "removed machine left-") != 2 {
		k.Errorf("reset: %d\n%s%s", r.code, r.out, r.err)
	}
	if _, err := os.Stat(k.host.dir); !os.IsNotExist(err) {
		k.Errorf("the directory of the machines is left: %v", err)
	}
	if diff := cmp.Diff(before, hostTraces(k.T)); diff != "" {
		k.Errorf("what reset has left on the host (-before +after):\n%s", diff)
	}
	k.leftNamespaces(inside, started)
}

// hasTraces fails the test unless the traces of machines are found that reset removes: otherwise nothing would be found afterwards either.
func (k *kindredManagement) hasTraces(before []string) {
	k.Helper()
	now := slices.DeleteFunc(hostTraces(k.T), func(trace string) bool { return slices.Contains(before, trace) })
	for _, kind := range []string{"kdm", "kdv", "/sys/fs/cgroup/", "table ip kindred-machines-", "process "} {
		if !slices.ContainsFunc(now, func(trace string) bool { return strings.HasPrefix(trace, kind) }) {
			k.Errorf("two machines have no trace %q in %v", kind, now)
		}
	}
}

// leftNamespaces fails the test if a process that was started before the reset still has a namespace of a machine. Later processes may have got the
// number of one that is gone.
func (k *kindredManagement) leftNamespaces(inside map[string]machineNamespaces, started map[string]string) {
	k.Helper()
	ofMachines, own := map[string]bool{}, namespacesOf("self")
	for _, n := range inside {
		ofMachines[n.network], ofMachines[n.mount] = n.network != "" && n.network != own.network, n.mount != "" && n.mount != own.mount
	}
	for pid, start := range processes(k.T) {
		if started[pid] != start {
			continue
		}
		if now := namespacesOf(pid); ofMachines[now.network] || ofMachines[now.mount] {
			command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			k.Errorf("process %s (%s) is left in the namespaces %+v of a machine", pid, strings.ReplaceAll(string(command), "\x00", " "), now)
		}
	}
}
