// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// secondNode is the name of the node on the second machine.
const secondNode = "second"

// TestJoin: another machine becomes a node with the line that "kindred token create" prints. Pods of both machines reach each other,
// Services, and names; the machine continues after a crash, also before the server does, and leaves.
func TestJoin(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("two machines cannot share one runtime")
	}
	second := newSecondMachine(t)
	c := ownClusterWithNode(t, "--bind-address", second.host, "--node-name", "first")
	second.resetAfterwards()
	s := newSession(t, c)
	invitation := s.invitation()
	s.refusesOthers(second, invitation)
	joined := second.join(append(slices.Clone(invitation), "--node-name", secondNode)...)
	s.isNode(second.address)
	s.refusesTakenName(second, invitation)
	if r := second.run("cert", "rotate"); r.code != 1 || !strings.Contains(r.err, "this machine is a node") {
		t.Errorf("cert rotate: %d, %s%s", r.code, r.out, r.err)
	}
	second.loadImages()
	s.connects()
	s.mendsRoutes(second.address)

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
		if routes := routesBy(t, second.address); len(routes) > 0 {
			return fmt.Errorf("%v", routes)
		}
		return nil
	})
}

// TestJoinBehindARouter: pods of machines that share no link reach each other through a tunnel, which comes back if it is removed.
func TestJoinBehindARouter(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("two machines cannot share one runtime")
	}
	joinsByTunnel(t, newRoutedMachine(t))
}

// TestPodNetworkVXLAN: machines that share a link use a tunnel as well, if one of them wants it.
func TestPodNetworkVXLAN(t *testing.T) {
	needContainers(t)
	if userRuntime != "" {
		t.Skip("two machines cannot share one runtime")
	}
	joinsByTunnel(t, newSecondMachine(t), "--pod-network", "vxlan")
}

// joinsByTunnel runs the scenario with a machine that joins with the given arguments.
func joinsByTunnel(t *testing.T, second *otherMachine, args ...string) {
	t.Helper()
	c := ownClusterWithNode(t, "--bind-address", second.host, "--node-name", "first")
	second.resetAfterwards()
	s := newSession(t, c)
	second.join(append(append(s.invitation(), "--node-name", secondNode), args...)...)
	s.isNode(second.address)
	second.loadImages()
	s.connects()
	tunnels := func() (found []netlink.Link) {
		t.Helper()
		links, err := netlink.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			if vxlan, ok := link.(*netlink.Vxlan); ok && vxlan.SrcAddr.String() == second.host {
				found = append(found, link)
			}
		}
		return found
	}
	s.transfers()
	for _, link := range tunnels() {
		if link.Attrs().MTU != 1450 {
			t.Errorf("the MTU of the tunnel is %d, want 50 less than that of the link below", link.Attrs().MTU)
		}
		if err := netlink.LinkDel(link); err != nil {
			t.Fatal(err)
		}
	}
	s.within(5*time.Second, "the tunnel is back", func() error {
		if len(tunnels()) != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	s.reaches("on-first", s.pod("on-second").Status.PodIP+":8080", "on-second")
	if r := second.run("leave", "--force"); r.code != 0 {
		t.Errorf("leave: %d, %q, %q", r.code, r.out, r.err)
	}
	s.within(20*time.Second, "the tunnel is gone", func() error {
		if left := tunnels(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// invitation returns the arguments of "kindred join" that "kindred token create" prints.
func (s *session) invitation() []string {
	s.Helper()
	r := s.cluster.run("token", "create", "--description", "the second machine")
	line := strings.Fields(r.out)
	if r.code != 0 || len(line) != 7 || line[0] != "kindred" || line[1] != "join" {
		s.Fatalf("token create: %d, %q, %s", r.code, r.out, r.err)
	}
	return line[2:]
}

// resetAfterwards resets the machine before its namespace goes.
func (m *otherMachine) resetAfterwards() {
	m.t.Cleanup(func() {
		if r := m.run("reset"); r.code != 0 {
			m.t.Errorf("reset of the second machine: %s", r.err)
		}
	})
}

func (m *otherMachine) loadImages() {
	m.t.Helper()
	file, err := archive()
	if err != nil {
		m.t.Fatal(err)
	}
	m.loadImage(file)
}

func (m *otherMachine) loadImage(file string) {
	m.t.Helper()
	if r := m.run("image", "load", file); r.code != 0 {
		m.t.Fatal(r.err)
	}
}

// refusesOthers: a wrong hash and a wrong token are refused, and nothing is left of them.
func (s *session) refusesOthers(m *otherMachine, invitation []string) {
	s.Helper()
	for what, test := range map[string]struct{ old, new, want string }{
		"another authority": {invitation[4], "sha256:" + strings.Repeat("0", 64), "the cluster's authority has the hash"},
		"a wrong secret":    {invitation[2], invitation[2][:7] + "0000000000000000", "the signature of the cluster's authority does not match"},
		"an unknown token":  {invitation[2], "aaaaaa.0123456789abcdef", "does not know the token"},
		"no token":          {invitation[2], "x", "the token"},
		"another port":      {invitation[0], "https://" + m.host + ":1", "connection refused"},
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
func (s *session) refusesTakenName(m *otherMachine, invitation []string) {
	s.Helper()
	other := *m
	other.dir = filepath.Join(s.TempDir(), "data")
	args := append([]string{"join", "--node-name", secondNode}, invitation...)
	if r := other.run(args...); r.code == 0 || !strings.Contains(r.err, "node second exists") {
		s.Errorf("a taken name: %d, %q", r.code, r.err)
	}
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
func (s *session) mendsRoutes(second string) {
	s.Helper()
	routes := routesBy(s.T, second)
	if len(routes) != 1 {
		s.Fatalf("routes to the second machine: %v", routes)
	}
	if err := netlink.RouteDel(&routes[0]); err != nil {
		s.Fatal(err)
	}
	s.within(5*time.Second, "the route to the second machine's pods is back", func() error {
		if len(routesBy(s.T, second)) == 0 {
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
