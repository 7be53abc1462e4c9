// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The link between this machine, which runs the server, and the second one, and the names of both ends.
const (
	joinHost, joinSecond = "10.247.9.1", "10.247.9.2"
	joinLink             = "kindred-join"
	secondNode           = "second"
)

// secondMachine is a network namespace that is connected with this machine as another machine would be, and a data directory.
type secondMachine struct {
	t   *testing.T
	dir string
}

func newSecondMachine(t *testing.T) *secondMachine {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := netns.NewNamed(joinLink)
	if err := errors.Join(err, netns.Set(here)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(there.Close(), netns.DeleteNamed(joinLink)); err != nil {
			t.Error(err)
		}
	})
	attrs := netlink.NewLinkAttrs()
	attrs.Name = joinLink
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(there))}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) }) // which went with the namespace, perhaps
	inside, err := netlink.NewHandleAt(there)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	outside := &netlink.Handle{}
	for name, at := range map[string]*netlink.Handle{"lo": inside, "eth0": inside, joinLink: outside} {
		address := map[string]string{"eth0": joinSecond + "/30", joinLink: joinHost + "/30"}[name]
		if err := bringUp(at, name, address); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := inside.RouteAdd(&netlink.Route{Gw: net.ParseIP(joinHost)}); err != nil {
		t.Fatal(err)
	}
	return &secondMachine{t, filepath.Join(t.TempDir(), "data")}
}

func bringUp(at *netlink.Handle, name, address string) error {
	link, err := at.LinkByName(name)
	if err != nil {
		return err
	}
	if address != "" {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := at.AddrAdd(link, parsed); err != nil {
			return err
		}
	}
	return at.LinkSetUp(link)
}

// command returns a command line of kindred on the machine.
func (m *secondMachine) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + joinLink, binary, "--data-dir", m.dir}, args...)...)
}

func (m *secondMachine) run(args ...string) result { return runCommand(m.command(args...), "") }

// join runs "kindred join" until it prints that the node is ready.
func (m *secondMachine) join(args ...string) *process {
	m.t.Helper()
	p := m.begin(args...)
	m.await(p, "ready in ")
	return p
}

// begin starts "kindred join".
func (m *secondMachine) begin(args ...string) *process {
	m.t.Helper()
	p, err := startProcess(m.command(append([]string{"join"}, args...)...))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Logf("kindred join:\n%s", p.out)
		}
		select {
		case <-p.done:
		default:
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			<-p.done
		}
	})
	return p
}

// await waits until a "kindred join" has printed something.
func (m *secondMachine) await(p *process, text string) {
	m.t.Helper()
	deadline := time.After(startLimit)
	for !strings.Contains(p.out.String(), text) {
		select {
		case <-p.done:
			m.t.Fatalf("kindred join ended: %v\n%s", p.cmd.ProcessState, p.out)
		case <-deadline:
			m.t.Fatalf("kindred join has not printed %q after %v:\n%s", text, startLimit, p.out)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestJoin: another machine becomes a node with the line that "kindred token create" prints. Pods of both machines reach each other,
// Services, and names; the machine continues after a crash, also before the server does, and leaves.
func TestJoin(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("two machines cannot share one runtime")
	}
	second := newSecondMachine(t)
	c := ownClusterWithNode(t, "--bind-address", joinHost, "--node-name", "first")
	t.Cleanup(func() { // before the namespace goes
		if r := second.run("reset"); r.code != 0 {
			t.Errorf("reset of the second machine: %s", r.err)
		}
	})
	s := newSession(t, c)
	r := c.run("token", "create", "--description", "the second machine")
	line := strings.Fields(r.out)
	if r.code != 0 || len(line) != 7 || line[0] != "kindred" || line[1] != "join" {
		t.Fatalf("token create: %d, %q, %s", r.code, r.out, r.err)
	}
	invitation := line[2:]
	s.refusesOthers(second, invitation)
	joined := second.join(append(slices.Clone(invitation), "--node-name", secondNode)...)
	s.isNode(joinSecond)
	s.refusesTakenName(second, invitation)
	file, err := archive()
	if err != nil {
		t.Fatal(err)
	}
	if r := second.run("image", "load", file); r.code != 0 {
		t.Fatal(r.err)
	}
	s.connects()
	s.mendsRoutes()

	if err := joined.cmd.Process.Kill(); err != nil { // nsenter has become kindred
		t.Fatal(err)
	}
	<-joined.done
	c.terminate(t)
	joined = second.begin()
	second.await(joined, "waiting for the server")
	c.again(t)
	second.await(joined, "ready in ")
	if restarts := s.pod("on-second").Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("the pod of the second machine was restarted %d times", restarts)
	}
	s.reaches("on-first", s.pod("on-second").Status.PodIP+":8080", "on-second")

	if r := second.run("leave"); r.code == 0 || !strings.Contains(r.err, "/on-second") || !strings.Contains(r.err, "--force") {
		t.Errorf("leave with a pod that is lost: %d, %q", r.code, r.err)
	}
	if r := second.run("leave", "--force"); r.code != 0 || !strings.Contains(r.out, "has left the cluster") {
		t.Errorf("leave: %d, %q, %q", r.code, r.out, r.err)
	}
	s.gone("node", secondNode)
	s.within(20*time.Second, "the routes to the machine that left are gone", func() error {
		if routes := routesBy(t, joinSecond); len(routes) > 0 {
			return fmt.Errorf("%v", routes)
		}
		return nil
	})
}

// refusesOthers: a wrong hash and a wrong token are refused, and nothing is left of them.
func (s *session) refusesOthers(m *secondMachine, invitation []string) {
	s.Helper()
	for what, test := range map[string]struct{ old, new, want string }{
		"another authority": {invitation[4], "sha256:" + strings.Repeat("0", 64), "the cluster's authority has the hash"},
		"a wrong secret":    {invitation[2], invitation[2][:7] + "0000000000000000", "the signature of the cluster's authority does not match"},
		"an unknown token":  {invitation[2], "aaaaaa.0123456789abcdef", "does not know the token"},
		"no token":          {invitation[2], "x", "the token"},
		"another port":      {invitation[0], "https://" + joinHost + ":1", "connection refused"},
	} {
		args := slices.Clone(invitation)
		args[slices.Index(args, test.old)] = test.new
		if r := m.run(append([]string{"join", "--node-name", secondNode}, args...)...); r.code == 0 || !strings.Contains(r.err, test.want) {
			s.Errorf("%s: %d, %q; want %q", what, r.code, r.err, test.want)
		}
	}
	if r := m.run("join"); r.code == 0 || !strings.Contains(r.err, "kindred token create") {
		s.Errorf("without an invitation: %d, %q", r.code, r.err)
	}
}

// refusesTakenName: another machine does not get the name of a node.
func (s *session) refusesTakenName(m *secondMachine, invitation []string) {
	s.Helper()
	other := &secondMachine{s.T, filepath.Join(s.TempDir(), "data")}
	args := append([]string{"join", "--node-name", secondNode}, invitation...)
	if r := other.run(args...); r.code == 0 || !strings.Contains(r.err, "node second exists") {
		s.Errorf("a taken name: %d, %q", r.code, r.err)
	}
	_ = m
}

// isNode: the second machine is a Ready node with this address and a range of its own, whose agent's server the API reaches.
func (s *session) isNode(address string) {
	s.Helper()
	client := s.cluster.client(s.T)
	nodes, err := client.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	ranges := map[string]bool{}
	for _, n := range nodes.Items {
		ranges[n.Spec.PodCIDR] = true
		if n.Name == secondNode && !slices.Contains(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}) {
			s.Errorf("the node's addresses: %v", n.Status.Addresses)
		}
	}
	if len(nodes.Items) != 2 || len(ranges) != 2 {
		s.Errorf("%d nodes with the ranges %v", len(nodes.Items), ranges)
	}
	s.eventually("the agent's server has a certificate", func() error {
		r := s.try("get", "--raw", "/api/v1/nodes/second/proxy/healthz")
		if r.code != 0 || r.out != "ok" {
			return fmt.Errorf("%q, %s\n%s", r.out, r.err, s.try("get", "csr", "-o", "yaml").out)
		}
		return nil
	})
}

// connects: pods on both machines reach each other by their addresses, by Services and by names, and the API reaches both.
func (s *session) connects() {
	s.Helper()
	for _, node := range []string{"first", secondNode} {
		s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: on-%[1]s, labels: {on: %[1]s}}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "%[2]s"
    command: [sh, -c, "mkdir /www; hostname > /www/index.html; exec httpd -f -v -p 8080 -h /www"]
    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}
---
apiVersion: v1
kind: Service
metadata: {name: on-%[1]s}
spec: {selector: {on: %[1]s}, ports: [{port: 80, targetPort: 8080}]}
`, node, image))
	}
	for _, pod := range []string{"on-first", "on-second"} {
		s.ready(pod)
	}
	first, second := s.pod("on-first").Status.PodIP, s.pod("on-second").Status.PodIP
	s.reaches("on-first", second+":8080", "on-second")
	s.reaches("on-second", first+":8080", "on-first")
	s.contains(s.kubectl("logs", "on-second"), first) // the source address is the pod's
	for _, from := range []string{"on-first", "on-second"} {
		for _, to := range []string{"on-first", "on-second"} {
			clusterIP := s.jsonpath("{.spec.clusterIP}", "service", to)
			s.reaches(from, clusterIP+":80", to)
			s.eventually(from+" looks up the Service "+to, func() error {
				if r := s.try("exec", from, "--", "nslookup", "-type=a", to+"."+s.namespace+".svc.cluster.local"); !strings.Contains(r.out, "Address: "+clusterIP) {
					return fmt.Errorf("%q, %s", r.out, r.err)
				}
				return nil
			})
		}
	}
}

// reaches: a pod gets an answer from another one.
func (s *session) reaches(pod, address, answer string) {
	s.Helper()
	s.within(20*time.Second, pod+" reaches "+answer, func() error {
		if r := s.try("exec", pod, "--", "timeout", "2", "wget", "-q", "-O", "-", "http://"+address); r.code != 0 || strings.TrimSpace(r.out) != answer {
			return fmt.Errorf("%q, %s", r.out, r.err)
		}
		return nil
	})
}

// mendsRoutes: a route that somebody deletes comes back within five seconds.
func (s *session) mendsRoutes() {
	s.Helper()
	routes := routesBy(s.T, joinSecond)
	if len(routes) != 1 {
		s.Fatalf("routes to the second machine: %v", routes)
	}
	if err := netlink.RouteDel(&routes[0]); err != nil {
		s.Fatal(err)
	}
	s.within(5*time.Second, "the route to the second machine's pods is back", func() error {
		if len(routesBy(s.T, joinSecond)) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// routesBy returns the routes of this machine by way of an address.
func routesBy(t *testing.T, gateway string) (by []netlink.Route) {
	t.Helper()
	all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range all {
		if via, ok := netip.AddrFromSlice(route.Gw); ok && via.Unmap().String() == gateway {
			by = append(by, route)
		}
	}
	return by
}
