// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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

// machineMounts returns the mounts that are in a directory of machines, or show files of one, in the mount namespaces of all processes: machines and
// containers have namespaces of their own.
func machineMounts(t *testing.T) (found []string) {
	t.Helper()
	seen := map[string]bool{}
	for pid := range processes(t) {
		namespace := namespacesOf(pid).mount
		text, err := os.ReadFile("/proc/" + pid + "/mountinfo")
		if seen[namespace] || err != nil {
			continue
		}
		seen[namespace] = true
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "/machines/") || strings.Contains(line, "kindred-machine") {
				found = append(found, "mount "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// machineNamespaces are the namespaces of a process that a machine has for itself.
type machineNamespaces struct{ network, mount string }

// machineProcesses returns the processes in the cgroups of machines and those that make or are machines, by PID, except for those that have ended.
func machineProcesses(t *testing.T) map[string]machineNamespaces {
	t.Helper()
	found := map[string]machineNamespaces{}
	for pid := range processes(t) {
		groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil {
			continue
		}
		if args := commandLine(pid); strings.Contains(string(groups), "kindred-machines-") || len(args) > 1 && args[1] == "machine" {
			found[pid] = namespacesOf(pid)
		}
	}
	return found
}

// commandLine returns the arguments of a process, the first of which is the program; one that is empty if it has ended.
func commandLine(pid string) []string {
	text, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
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

// resetRemoves kills the management cluster, whose workload clusters go on, and resets it, which removes those as well: the host has afterwards what it
// had before the first machine. The clusters are in two namespaces, one of them runs pods, and a machine of a third is being made.
func (k *kindredManagement) resetRemoves(before []string) {
	k.Helper()
	other := k.elsewhere()
	k.create("left", 1, 1)
	other.create("left", 1, 0)
	k.nodesReady("left", 2, provisioning)
	other.nodesReady("left", 1, provisioning)
	complete := k.host.list()
	k.loadImages()
	k.runsPods("left")
	k.create("half", 1, 3)
	k.interruptsCreation("half")
	k.cluster.kill(k.T)
	for _, m := range complete {
		if now := k.host.get(m.Name); now.Phase != "Running" {
			k.Errorf("machine %s is %s after the end of the management cluster", m.Name, now.Phase)
		}
	}
	k.hasTraces(before)
	all, inside, started := k.host.list(), machineProcesses(k.T), processes(k.T)
	if len(complete) != 3 {
		k.Errorf("the machines of two clusters are %+v", complete)
	}
	r := k.cluster.run("reset")
	if r.code != 0 {
		k.Errorf("reset: %d\n%s%s", r.code, r.out, r.err)
	}
	for _, m := range all {
		if !strings.Contains(r.out, "removed machine "+m.Name+"\n") {
			k.Errorf("reset does not say that it removed machine %s:\n%s", m.Name, r.out)
		}
	}
	if _, err := os.Stat(k.host.dir); !os.IsNotExist(err) {
		k.Errorf("the directory of the machines is left: %v", err)
	}
	if diff := cmp.Diff(before, hostTraces(k.T)); diff != "" {
		k.Errorf("what reset has left on the host (-before +after):\n%s", diff)
	}
	k.leftNamespaces(inside, started)
}

// interruptsCreation stops the processes of the provider that make machines of a Cluster, one of them in the middle of it.
func (k *kindredManagement) interruptsCreation(name string) {
	k.Helper()
	for began := time.Now(); time.Since(began) < provisioning; time.Sleep(time.Millisecond) {
		if made, err := filepath.Glob(filepath.Join(k.host.dir, "machines", name+"-*")); err != nil || len(made) == 0 {
			continue
		}
		stopped := k.signalCreation(syscall.SIGSTOP)
		if len(stopped) > 0 && k.host.isChanging() {
			for _, m := range k.host.list() {
				k.Logf("machine %s is %s when the processes %v are stopped, which make machines", m.Name, m.Phase, stopped)
			}
			return
		}
		k.signalCreation(syscall.SIGCONT)
	}
	k.Fatalf("no machine of %s was seen being made", name)
}

// signalCreation sends a signal to the processes of the provider that make machines, and returns their PIDs.
func (k *kindredManagement) signalCreation(s syscall.Signal) (sent []int) {
	k.Helper()
	for pid := range processes(k.T) {
		if args := commandLine(pid); len(args) != 5 || args[1] != "machine" || args[3] != k.host.dir || args[4] != "apply" {
			continue
		}
		number, err := strconv.Atoi(pid)
		if err == nil {
			err = syscall.Kill(number, s)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			k.Fatal(err)
		}
		sent = append(sent, number)
	}
	return sent
}

// isChanging reports whether a process has the lock of the directory, with which it makes or removes a machine.
func (h *hostMachines) isChanging() bool {
	h.Helper()
	file, err := os.Open(filepath.Join(h.dir, "lock"))
	if err != nil {
		h.Fatal(err)
	}
	defer file.Close()
	return errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// hasTraces fails the test unless the traces of machines and of their pods are found that reset removes: otherwise nothing would be found afterwards
// either.
func (k *kindredManagement) hasTraces(before []string) {
	k.Helper()
	now := slices.DeleteFunc(hostTraces(k.T), func(trace string) bool { return slices.Contains(before, trace) })
	for _, kind := range []string{"kdm", "kdv", "/sys/fs/cgroup/", "table ip kindred-machines-", "process ", "mount "} {
		if !slices.ContainsFunc(now, func(trace string) bool { return strings.HasPrefix(trace, kind) }) {
			k.Errorf("the machines have no trace %q in %v", kind, now)
		}
	}
	namespaces := map[machineNamespaces]bool{}
	for pid, n := range machineProcesses(k.T) {
		if commandLine(pid)[0] == "httpd" {
			namespaces[n] = true
		}
	}
	if len(namespaces) != 3 {
		k.Errorf("three pods have the namespaces %v", namespaces)
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
			k.Errorf("process %s (%q) is left in the namespaces %+v of a machine", pid, commandLine(pid), now)
		}
	}
}
