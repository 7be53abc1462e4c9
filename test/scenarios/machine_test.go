// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

const interrupt = syscall.SIGINT

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// reachable sends a request to the web server of a pod.
func reachable(ip string) error {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get("http://" + net.JoinHostPort(ip, "8080") + "/")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", ip, response.Status)
	}
	return nil
}

// TestDataDirectoryHasOneHolder: a second process on a data directory is refused, with one line
// that names the process that uses it.
func TestDataDirectoryHasOneHolder(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "1")
	pid := strconv.Itoa(c.up.cmd.Process.Pid)
	for _, verb := range [][]string{{"up", "--no-node", "--simulated-nodes", "1", "--secure-port", "0"}, {"reset"}} {
		r := c.run(verb...)
		if r.code != 1 || !containsAll(r.err, "error: ", c.dir, "process "+pid) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("kindred %s: exit status %d: %s", verb[0], r.code, r.err)
		}
	}
	if r := c.run("status"); r.code != 0 || !containsAll(r.out, "1 of 1 ready", pid) {
		t.Errorf("the first one suffered: exit status %d: %s%s", r.code, r.out, r.err)
	}
}

// TestForeignDirectory: a directory with other files is refused and not changed.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	diary := filepath.Join(dir, "diary")
	if err := os.WriteFile(diary, []byte("dear diary"), 0o640); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	c := &cluster{dir: dir, home: t.TempDir()}
	for _, verb := range [][]string{{"up", "--no-node", "--simulated-nodes", "1", "--secure-port", "0"}, {"reset"}} {
		r := c.run(verb...)
		if r.code != 1 || !containsAll(r.err, "error: ", dir, "diary") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("kindred %s: exit status %d: %s", verb[0], r.code, r.err)
		}
	}
	if after := tree(t, dir); !slices.Equal(before, after) {
		t.Errorf("the directory was touched:\n%v\n%v", before, after)
	}
}

// tree returns the names, modes, sizes and times of a directory's files.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			lines = append(lines, fmt.Sprint(path, info.Mode(), info.Size(), info.ModTime()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestWrongUsage: invalid usage ends with status 2 and one line.
func TestWrongUsage(t *testing.T) {
	c := &cluster{dir: filepath.Join(t.TempDir(), "data"), home: t.TempDir()}
	for _, tt := range []struct {
		verb []string
		want string
	}{
		{[]string{"up", "--secure-port", "70000"}, "70000"},
		{[]string{"up", "--bind-address", "localhost"}, `"localhost" is not an IP address`},
		{[]string{"up", "--service-cidr", "10.96.0.1/16"}, "10.96.0.0/16"},
		{[]string{"up", "--load-balancer-pool", "fd00::/120"}, "give Services an IPv6 range too"},
		{[]string{"up", "--simulated-nodes", "-1"}, "-1"},
		{[]string{"up", "--node-name", "Not_A_Name"}, "Not_A_Name"},
		{[]string{"up", "--runtime-config", "apps/v1beta9=true"}, "unknown api version apps/v1beta9; this server knows apps/v1"},
		{[]string{"up", "--runtime-config", "apps/v1=false"}, "apps/v1 cannot be turned off"},
		{[]string{"up", "now"}, "now"},
		{[]string{"image", "load"}, "at least 1 arg"},
	} {
		r := c.run(tt.verb...)
		if r.code != 2 || !containsAll(r.err, "error: ", tt.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("kindred %v: exit status %d: %s", tt.verb, r.code, r.err)
		}
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("wrong usage left a data directory: %v", err)
	}
}

// footprint is what a cluster has on the machine outside of its data directory.
type footprint struct {
	processes, mounts, links, cgroups []string
}

func (f footprint) empty() bool {
	return len(f.processes)+len(f.mounts)+len(f.links)+len(f.cgroups) == 0
}

// containerRuntime returns the socket of the node's containerd:
// unix:///run/kindred/<id>/containerd.sock.
func (c *cluster) containerRuntime(t *testing.T) string {
	t.Helper()
	r := c.run("status", "-o", "json")
	var status struct{ ContainerRuntime string }
	if err := json.Unmarshal([]byte(r.out), &status); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	return status.ContainerRuntime
}

// marks are strings that identify a cluster's objects on the machine: its data directory, and its
// ID, which is in the status and in names on the node.
func (c *cluster) marks(t *testing.T) []string {
	t.Helper()
	runtime := c.containerRuntime(t)
	id := filepath.Base(filepath.Dir(runtime))
	if len(id) < 8 {
		t.Fatalf("no identity in %q", runtime)
	}
	return []string{c.dir + "/", id}
}

func footprintOf(t *testing.T, marks []string) footprint {
	t.Helper()
	marked := func(text string) bool {
		return slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(text, mark) })
	}
	var f footprint
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range commands {
		content, err := os.ReadFile(file)
		if text := strings.ReplaceAll(string(content), "\x00", " "); err == nil && marked(text) {
			f.processes = append(f.processes, text)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if marked(line) {
			f.mounts = append(f.mounts, line)
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range interfaces {
		if marked(link.Name) {
			f.links = append(f.links, link.Name)
		}
	}
	f.cgroups = markedDirs(marked)
	return f
}

func markedDirs(marked func(string) bool) []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && marked(entry.Name()) {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// TestSideBySide: two clusters with real nodes on one machine do not affect each other. Reset
// removes one of them completely and leaves the other unchanged.
func TestSideBySide(t *testing.T) {
	one, two := ownClusterWithNode(t), ownClusterWithNode(t)
	first, second := newSession(t, one), newSession(t, two)
	first.createWeb(2)
	second.createWeb(2)
	for _, s := range []*session{first, second} {
		if pods := s.pods("app=web"); len(pods) != 2 {
			t.Errorf("%d pods, want 2", len(pods))
		}
	}
	for _, a := range first.pods("app=web") {
		for _, b := range second.pods("app=web") {
			if a.Status.PodIP == b.Status.PodIP {
				t.Errorf("pods of both clusters have the address %s", a.Status.PodIP)
			}
		}
	}
	// Both have the same range of Services, and the same address for DNS.
	for _, s := range []*session{first, second} {
		s.kubectl("create", "service", "clusterip", "web", "--clusterip=10.96.0.77", "--tcp=80:8080")
		pod := s.pods("app=web")[0].Name
		s.eventually("its own DNS and Service", func() error {
			if r := s.try("exec", pod, "--", "nslookup", "-type=a", "web."+s.namespace+".svc.cluster.local"); !strings.Contains(r.out, "Address: 10.96.0.77") {
				return fmt.Errorf("%s%s", r.out, r.err)
			}
			r := s.try("exec", pod, "--", "wget", "-q", "-O", "-", "http://10.96.0.77")
			for _, own := range s.pods("app=web") {
				if strings.TrimSpace(r.out) == own.Name {
					return nil
				}
			}
			return fmt.Errorf("an answer of %q, %s", r.out, r.err)
		})
	}
	removed, kept := first.pods("app=web"), second.pods("app=web")
	for _, pod := range slices.Concat(removed, kept) {
		if found := logsOf(t, pod); len(found) != 2 {
			t.Errorf("log shippers find %q of pod %s, not its directory and a link", found, pod.Name)
		}
	}
	survivors := second.lives("app=web")
	marks := one.marks(t)
	if before := footprintOf(t, marks); len(before.processes) == 0 || len(before.mounts) == 0 || len(before.links) == 0 || len(before.cgroups) == 0 {
		t.Errorf("this cluster cannot be found on the machine, so nothing can be said of its removal: %+v", before)
	}
	rules := firewall(t, marks)

	one.terminate(t)
	if r := one.run("reset"); r.code != 0 || r.out != "removed the cluster in "+one.dir+"\n" {
		t.Errorf("reset: exit status %d: %s%s", r.code, r.out, r.err)
	}
	if _, err := os.Stat(one.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory is still there: %v", err)
	}
	if after := footprintOf(t, marks); !after.empty() {
		t.Errorf("reset left on the machine: %+v", after)
	}
	if after := firewall(t, marks); len(after) > 0 {
		t.Errorf("reset left firewall rules: %v (before: %v)", after, rules)
	}
	if r := one.run("reset"); r.code != 0 || !strings.HasPrefix(r.out, "nothing to remove") {
		t.Errorf("a second reset: exit status %d: %s%s", r.code, r.out, r.err)
	}
	second.stayed(survivors, "app=web")
	for _, pod := range removed {
		if left := logsOf(t, pod); len(left) > 0 {
			t.Errorf("reset left logs: %q", left)
		}
	}
	for _, pod := range kept {
		if found := logsOf(t, pod); len(found) != 2 {
			t.Errorf("the other cluster suffered: log shippers find %q of pod %s", found, pod.Name)
		}
	}
	for _, pod := range second.pods("app=web") {
		if err := reachable(pod.Status.PodIP); err != nil {
			t.Errorf("the other cluster suffered: %v", err)
		}
	}
}

// logsOf returns what log shippers find of a pod: the directory of its logs, and links to them.
func logsOf(t *testing.T, pod v1.Pod) []string {
	t.Helper()
	dir := "/var/log/pods/" + pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
	found, err := filepath.Glob(dir)
	if err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob("/var/log/containers/" + pod.Name + "_" + pod.Namespace + "_*.log")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			found = append(found, link)
		}
	}
	return found
}

// firewall returns the firewall rules that contain a cluster's marks.
func firewall(t *testing.T, marks []string) []string {
	t.Helper()
	var found []string
	for _, table := range []string{"nat", "filter"} {
		out, err := exec.Command("iptables-save", "-t", table).Output()
		if err != nil {
			t.Fatalf("iptables-save: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			if containsAny(line, marks) {
				found = append(found, line)
			}
		}
	}
	out, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		t.Fatalf("nft list tables: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		if containsAny(line, marks) {
			found = append(found, line)
		}
	}
	return found
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
