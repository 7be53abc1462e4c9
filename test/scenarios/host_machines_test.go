// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
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

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// hostMachines are machines on this host, in a directory of their own.
type hostMachines struct {
	*testing.T
	dir string
}

// hostMachine is a machine, as "kindred machine" prints it.
type hostMachine struct {
	Name, Address, Phase, Owner string
	Args                        []string
	PID                         int
	Ends                        struct {
		Count int
		Last  string
	}
}

// newHostMachines returns a directory without machines. What its machines leave behind on the host is an error.
func newHostMachines(t *testing.T) *hostMachines {
	t.Helper()
	needContainers(t)
	if userRuntime != "" {
		t.Skip("machines on this host have containerds of their own")
	}
	h := &hostMachines{t, filepath.Join(t.TempDir(), "machines")}
	links, groups := hostLinks(t), hostCgroups(t)
	t.Cleanup(func() {
		for _, m := range h.list() {
			h.run("delete", m.Name)
		}
		if diff := cmp.Diff(groups, hostCgroups(t)); diff != "" {
			t.Errorf("cgroups that are left (-before +after):\n%s", diff)
		}
		h.removeNetwork(links)
		if diff := cmp.Diff(links, hostLinks(t)); diff != "" {
			t.Errorf("links that are left (-before +after):\n%s", diff)
		}
	})
	return h
}

// removeNetwork removes the bridge and the rules, which stay for the next machine. Links that were there before are others'.
func (h *hostMachines) removeNetwork(before []string) {
	h.Helper()
	for _, name := range hostLinks(h.T) {
		if !strings.HasPrefix(name, "kdm") || slices.Contains(before, name) {
			continue
		}
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			h.Error(err)
		}
		if out, err := exec.Command("nft", "delete", "table", "ip", "kindred-machines-"+strings.TrimPrefix(name, "kdm")).CombinedOutput(); err != nil {
			h.Errorf("%v: %s", err, out)
		}
	}
}

// hostLinks are the links of machines on this host.
func hostLinks(t *testing.T) (names []string) {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if name := l.Attrs().Name; strings.HasPrefix(name, "kdm") || strings.HasPrefix(name, "kdv") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hostCgroups are the cgroups of machines on this host.
func hostCgroups(t *testing.T) (found []string) {
	t.Helper()
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, "kindred-machines-") {
			found = append(found, path)
			return filepath.SkipDir
		}
		return nil // cgroups of other programs go at any time
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// memory returns the cgroup of all machines in this directory.
func (h *hostMachines) memory() memoryGroup {
	h.Helper()
	for _, dir := range hostCgroups(h.T) {
		if _, err := os.Stat(filepath.Join(dir, h.list()[0].Name)); err != nil {
			continue // machines in another directory
		}
		for _, g := range []memoryGroup{{dir: dir}, {dir: dir, v2: true}} {
			if _, err := os.Stat(g.limitFile()); err == nil {
				return g
			}
		}
	}
	h.Fatal("no cgroup of machines has the controller memory")
	return memoryGroup{}
}

// run runs "kindred machine".
func (h *hostMachines) run(args ...string) string {
	h.Helper()
	return h.input("", args...)
}

func (h *hostMachines) input(stdin string, args ...string) string {
	h.Helper()
	r := runCommand(exec.Command(binary, append([]string{"machine", "--machines-dir", h.dir}, args...)...), stdin)
	if r.code != 0 {
		h.Fatalf("kindred machine %s: exit status %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

func (h *hostMachines) list() []hostMachine {
	h.Helper()
	var all []hostMachine
	if err := json.Unmarshal([]byte(h.run("list", "-o", "json")), &all); err != nil {
		h.Fatal(err)
	}
	return all
}

func (h *hostMachines) get(name string) hostMachine {
	h.Helper()
	for _, m := range h.list() {
		if m.Name == name {
			return m
		}
	}
	h.Fatalf("there is no machine %s", name)
	return hostMachine{}
}

func (m hostMachine) ip() string { ip, _, _ := strings.Cut(m.Address, "/"); return ip }

// inside runs a command in a machine, and returns what it prints; an error with all output if it fails.
func (h *hostMachines) inside(name string, command ...string) (string, error) {
	r := runCommand(exec.Command(binary, append([]string{"machine", "--machines-dir", h.dir, "exec", name, "--"}, command...)...), "")
	if r.code != 0 {
		return "", fmt.Errorf("%s in %s: %s%s", strings.Join(command, " "), name, r.out, r.err)
	}
	return r.out, nil
}

// loadImages loads the images of the tests in a machine.
func (h *hostMachines) loadImages(name string) {
	h.Helper()
	file, err := archive()
	if err != nil {
		h.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "machines", name, "lib", "images.tar"), content, 0o600); err != nil {
		h.Fatal(err)
	}
	if out, err := h.inside(name, "kindred", "image", "load", "/var/lib/images.tar"); err != nil {
		h.Fatal(out, err)
	}
}

// within waits until a check passes.
func (h *hostMachines) within(limit time.Duration, what string, check func() error) {
	h.Helper()
	(&session{T: h.T}).within(limit, what, check)
}

// ready waits until the nodes of the cluster of a server are Ready.
func (h *hostMachines) ready(server string, nodes ...string) {
	h.Helper()
	h.within(patience, "the nodes are Ready", func() error {
		command := []string{"kindred", "kubectl", "wait", "--for=condition=Ready", "--timeout=1s"}
		for _, node := range nodes {
			command = append(command, "node/"+node)
		}
		_, err := h.inside(server, command...)
		return err
	})
}

// killKindred kills Kindred in a machine, and not its first process.
func (h *hostMachines) killKindred(name string) {
	h.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", h.get(name).PID))
	if err != nil {
		h.Fatal(err)
	}
	for _, list := range lists { // each thread has the children that it has started
		children, err := os.ReadFile(list)
		if err != nil {
			h.Fatal(err)
		}
		for pid := range strings.FieldsSeq(string(children)) {
			command, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if err != nil || !strings.HasPrefix(string(command), "/run/kindred-machine/kindred\x00") {
				continue
			}
			number, err := strconv.Atoi(pid)
			if err == nil {
				err = syscall.Kill(number, syscall.SIGKILL)
			}
			if err != nil {
				h.Fatal(err)
			}
			return
		}
	}
	h.Fatalf("machine %s has no process of Kindred", name)
}

// TestMachinesOfThisHost: two machines of this host are a cluster with real pods. Kindred is started again when it is killed, and the
// pods run on; a machine whose first process is killed is dead. Nothing is left of machines that are deleted.
func TestMachinesOfThisHost(t *testing.T) {
	h := newHostMachines(t)
	h.run("create", "one", "--", "up", "--server")
	h.within(patience, "the server answers", func() error {
		_, err := h.inside("one", "kindred", "kubectl", "get", "--raw", "/readyz")
		return err
	})
	line, err := h.inside("one", "kindred", "token", "create")
	if err != nil {
		t.Fatal(err)
	}
	h.run(append([]string{"create", "two", "--"}, joinArguments(t, line)...)...)
	h.ready("one", "one", "two")
	h.loadImages("one")
	h.loadImages("two")
	h.serves()
	h.refusesAnother()
	h.survivesKill()
	h.leadsTo("one")

	if err := syscall.Kill(h.get("two").PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.within(10*time.Second, "the machine is dead", func() error {
		if m := h.get("two"); m.Phase != "Dead" {
			return fmt.Errorf("it is %s", m.Phase)
		}
		return nil
	})
	h.run("delete", "two", "one")
	if left := h.list(); len(left) > 0 {
		t.Errorf("machines that are left: %+v", left)
	}
	if left, err := os.ReadDir(filepath.Join(h.dir, "machines")); err != nil || len(left) > 0 {
		t.Errorf("files that are left: %v, %v", left, err)
	}
}

// webOnTwo is a Deployment with a pod on each of two nodes.
const webOnTwo = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
      containers:
      - {name: web, image: "` + image + `", command: [httpd, -f, -h, /etc], ports: [{containerPort: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

// serves runs pods on both machines, which reach each other through a Service and its name.
func (h *hostMachines) serves() {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "machines", "one", "lib", "web.yaml"), []byte(webOnTwo), 0o600); err != nil {
		h.Fatal(err)
	}
	for _, command := range []string{"apply -f /var/lib/web.yaml", "rollout status deployment/web --timeout=60s"} {
		if _, err := h.inside("one", append([]string{"kindred", "kubectl"}, strings.Fields(command)...)...); err != nil {
			h.Fatal(err)
		}
	}
	address, err := h.inside("one", "kindred", "kubectl", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		h.Fatal(err)
	}
	// The static busybox cannot resolve names for wget.
	ask := "nslookup -type=a web.default.svc.cluster.local && for i in 1 2 3 4 5 6; do timeout 2 wget -q -O /dev/null http://" + address + "/hostname || exit 1; done"
	h.within(patience, "each pod reaches the Service, and resolves its name", func() error {
		pods, err := h.inside("one", "kindred", "kubectl", "get", "pods", "-l", "app=web", "-o", "name")
		if err != nil {
			return err
		}
		for pod := range strings.FieldsSeq(pods) {
			out, err := h.inside("one", "kindred", "kubectl", "exec", pod, "--", "sh", "-c", ask)
			if err != nil || !strings.Contains(out, "Address: "+address) {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	})
}

// refusesAnother: a machine that exists is not changed into another one.
func (h *hostMachines) refusesAnother() {
	h.Helper()
	r := runCommand(exec.Command(binary, "machine", "--machines-dir", h.dir, "create", "two", "--", "up"), "")
	if r.code == 0 || !strings.Contains(r.err, "another machine has this name") {
		h.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
}

// survivesKill: Kindred in a machine is killed, and comes back; its pods are not restarted.
func (h *hostMachines) survivesKill() {
	h.Helper()
	pods := func() string {
		out, err := h.inside("one", "kindred", "kubectl", "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
		if err != nil {
			h.Fatal(err)
		}
		return out
	}
	before := pods()
	h.killKindred("two")
	h.within(patience, "the end of Kindred is recorded", func() error {
		if ends := h.get("two").Ends; ends.Count != 1 || ends.Last != "signal: killed" {
			return fmt.Errorf("%+v", ends)
		}
		return nil
	})
	h.within(patience, "the node runs again", func() error {
		log, err := os.ReadFile(filepath.Join(h.dir, "machines", "two", "log"))
		if err != nil || strings.Count(string(log), "a node of the cluster") < 2 {
			return fmt.Errorf("%v: %s", err, log)
		}
		return nil
	})
	h.ready("one", "one", "two")
	if after := pods(); after != before {
		h.Errorf("the pods were %s and are %s", before, after)
	}
}

// leadsTo: an endpoint of the host leads to a server, for the host and for other machines, and refuses connections without one.
func (h *hostMachines) leadsTo(server string) {
	h.Helper()
	set := func(servers ...string) string {
		request, err := json.Marshal(map[string]any{"name": "api", "port": 6443, "servers": servers})
		if err != nil {
			h.Fatal(err)
		}
		var endpoint struct{ Address string }
		if err := json.Unmarshal([]byte(h.input(string(request), "endpoint", "set")), &endpoint); err != nil {
			h.Fatal(err)
		}
		return endpoint.Address
	}
	address := set(h.get(server).ip())
	url := "https://" + address + ":6443/version"
	if answer, err := readUnverified(url); err != nil || !strings.Contains(answer, "gitVersion") {
		h.Errorf("the host asks the endpoint: %s, %v", answer, err)
	}
	config, err := os.ReadFile(filepath.Join(h.dir, "machines", server, "lib", "kindred", "kubeconfig"))
	if err != nil {
		h.Fatal(err)
	}
	for _, machine := range []string{"one", "two"} { // the server itself, and another machine
		if err := os.WriteFile(filepath.Join(h.dir, "machines", machine, "lib", "admin"), config, 0o600); err != nil {
			h.Fatal(err)
		}
		out, err := h.inside(machine, "kindred", "kubectl", "--kubeconfig=/var/lib/admin", "--server", "https://"+address+":6443", "--tls-server-name=kubernetes", "get", "--raw", "/version")
		if err != nil {
			h.Errorf("machine %s asks the endpoint: %s, %v", machine, out, err)
		}
	}
	if again := set(); again != address {
		h.Errorf("the endpoint has moved from %s to %s", address, again)
	}
	if answer, err := readUnverified(url); err == nil {
		h.Errorf("an endpoint without servers answers %s", answer)
	}
	h.run("endpoint", "delete", "api")
}

// readUnverified reads a URL without checking who answers.
func readUnverified(url string) (string, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// joinArguments returns the arguments of the line that joins.
func joinArguments(t *testing.T, out string) []string {
	t.Helper()
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "kindred" && fields[1] == "join" {
			return fields[1:]
		}
	}
	t.Fatalf("no line that joins: %s", out)
	return nil
}
