// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }

// machine is a node with a bridge, as the namespace of the test: the rules are written there.
type machine struct {
	t        *testing.T
	bridge   netlink.Link
	table    *nft.Table
	compiler *Compiler
}

const gateway = "10.0.0.100"

func newMachine(t *testing.T) *machine {
	netns.Required(t)
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(t, netlink.LinkAdd(bridge))
	t.Cleanup(func() { must(t, netlink.LinkDel(bridge)) })
	for _, a := range []string{gateway + "/24", "fd00::100/64"} {
		must(t, netlink.AddrAdd(bridge, address(t, a)))
	}
	must(t, netlink.LinkSetUp(bridge))
	for _, s := range []string{"net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"} {
		must(t, os.WriteFile("/proc/sys/"+s, []byte("1"), 0o644))
	}
	table, err := nft.Open("kindred-test")
	must(t, err)
	t.Cleanup(func() { must(t, table.Delete(context.Background())) })
	table.Put("", Base())
	m := &machine{t, bridge, table, New(options)}
	m.write()
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func address(t *testing.T, s string) *netlink.Addr {
	a, err := netlink.ParseAddr(s)
	must(t, err)
	a.Flags = unix.IFA_F_NODAD
	return a
}

func (m *machine) write() {
	m.t.Helper()
	for source, f := range m.compiler.Changes() {
		m.table.Put(source, f)
	}
	refused, err := m.table.Write(context.Background())
	if err != nil || len(refused) > 0 {
		m.t.Fatal(refused, err)
	}
}

func (m *machine) apply(policies ...*networkingv1.NetworkPolicy) {
	m.t.Helper()
	for _, np := range policies {
		must(m.t, m.compiler.SetPolicy(np))
	}
	m.write()
}

// node is the machine itself as a client.
var node *host

// host is a namespace with one address in each family.
type host struct {
	name   string
	ns     *os.File
	v4, v6 string
}

// connect adds a namespace with a link to the bridge.
func (m *machine) connect(name string, number int) *host {
	h := m.namespace(name, fmt.Sprint("10.0.0.", number), fmt.Sprintf("fd00::%d", number))
	link := m.plug(h, gateway)
	must(m.t, netlink.LinkSetMaster(link, m.bridge))
	must(m.t, netlink.LinkSetHairpin(link, true))
	h.echo(m.t, 7)
	for range 20 { // until the bridge forwards to its new port
		if node.reaches(m.t, "udp", h.v4, 7) && node.reaches(m.t, "udp", h.v6, 7) {
			return h
		}
	}
	m.t.Fatalf("the bridge does not reach %s", name)
	return nil
}

// namespace is made by a thread that ends with it.
func (m *machine) namespace(name, v4, v6 string) *host {
	h := &host{name: name, v4: v4, v6: v6}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			h.ns, err = threadNamespace()
		}
		done <- err
	}()
	must(m.t, <-done)
	m.t.Cleanup(func() { h.ns.Close() })
	return h
}

func threadNamespace() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
}

// plug links the namespace with the machine, and returns the machine's end.
func (m *machine) plug(h *host, router string) netlink.Link {
	must(m.t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: h.name}, PeerName: "eth0"}))
	inner, err := netlink.LinkByName("eth0")
	must(m.t, err)
	must(m.t, netlink.LinkSetNsFd(inner, int(h.ns.Fd())))
	outer, err := netlink.LinkByName(h.name)
	must(m.t, err)
	m.t.Cleanup(func() { must(m.t, netlink.LinkDel(outer)) })
	must(m.t, netlink.LinkSetUp(outer))
	h.do(m.t, func() {
		for _, name := range []string{"lo", "eth0"} {
			link, err := netlink.LinkByName(name)
			must(m.t, err)
			must(m.t, netlink.LinkSetUp(link))
			inner = link
		}
		must(m.t, netlink.AddrAdd(inner, address(m.t, h.v4+"/24")))
		must(m.t, netlink.AddrAdd(inner, address(m.t, h.v6+"/64")))
		must(m.t, netlink.RouteAdd(&netlink.Route{LinkIndex: inner.Attrs().Index, Gw: net.ParseIP(router)}))
	})
	return outer
}

// do runs a function in the namespace. Sockets that it opens stay there.
func (h *host) do(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // without unlock: the thread ends
		err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	must(t, <-done)
}

// echo answers on ports of the host, with TCP and UDP.
func (h *host) echo(t *testing.T, ports ...int) {
	t.Helper()
	h.do(t, func() {
		for _, port := range ports {
			l, err := net.Listen("tcp", fmt.Sprint(":", port))
			must(t, err)
			u, err := net.ListenPacket("udp", fmt.Sprint(":", port))
			must(t, err)
			t.Cleanup(func() { l.Close(); u.Close() })
			go serveTCP(l)
			go serveUDP(u)
		}
	})
}

func serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			b := make([]byte, 100)
			for n, err := c.Read(b); err == nil; n, err = c.Read(b) {
				_, _ = c.Write(b[:n])
			}
			c.Close()
		}()
	}
}

func serveUDP(u net.PacketConn) {
	b := make([]byte, 100)
	for {
		n, from, err := u.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = u.WriteTo(b[:n], from)
	}
}

const patience = 300 * time.Millisecond

// reaches reports whether the host gets an answer.
func (h *host) reaches(t *testing.T, network, to string, port int) bool {
	t.Helper()
	var c net.Conn
	var err error
	dial := func() {
		c, err = (&net.Dialer{Timeout: patience}).Dial(network, net.JoinHostPort(to, fmt.Sprint(port)))
	}
	if h == nil {
		dial()
	} else {
		h.do(t, dial)
	}
	if err != nil {
		return false
	}
	defer c.Close()
	return answers(c, "ping")
}

func answers(c net.Conn, message string) bool {
	if _, err := c.Write([]byte(message)); err != nil {
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 100)
	n, err := c.Read(b)
	return err == nil && string(b[:n]) == message
}

// expect fails the test unless the host reaches exactly what is listed.
func (h *host) expect(t *testing.T, want bool, to string, port int, networks ...string) {
	t.Helper()
	for _, network := range networks {
		if got := h.reaches(t, network, to, port); got != want {
			t.Errorf("%s port %d of %s: reached %t, want %t", network, port, to, got, want)
		}
	}
}

// pod is the object for a host, with its name as label.
func (h *host) pod(namespace string, ports ...corev1.ContainerPort) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: h.name, Labels: map[string]string{"pod": h.name}},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Ports: ports}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: h.v4}, {IP: h.v6}}},
	}
}

func np(name, pod string, types ...networkingv1.PolicyType) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: *label("pod", pod), PolicyTypes: types},
	}
}

func label(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func numbered(protocol corev1.Protocol, port intstr.IntOrString) []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(protocol), Port: &port}}
}
