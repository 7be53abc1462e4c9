// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

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
	bridge   *netns.Bridge
	table    *nft.Table
	compiler *Compiler
}

// gateway is the address of the machine on its bridge.
const gateway = "10.0.0.1"

func newMachine(t *testing.T) *machine {
	bridge := netns.NewBridge(t, "br0", netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64"))
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

// host is a pod on the bridge, another machine, or the machine itself, which is node.
type host struct {
	*netns.Pod
	name   string
	v4, v6 string
}

// node is the machine itself, whose namespace is that of the test.
var node = &host{v4: gateway}

// connect adds a pod. The addresses of pods are those after the gateway, in order.
func (m *machine) connect(name string) *host {
	p := m.bridge.Pod(m.t)
	return &host{Pod: p, name: name, v4: p.Addresses[0].String(), v6: p.Addresses[1].String()}
}

// patience is the time after which a packet counts as dropped. An answer that is expected may take longer on a busy
// machine: longPatience.
const (
	patience     = 300 * time.Millisecond
	longPatience = 3 * time.Second
)

// reaches reports whether the host gets an answer in time.
func (h *host) reaches(t *testing.T, network, to string, port int, limit time.Duration) bool {
	t.Helper()
	c, err := h.Dial(t, network, net.JoinHostPort(to, fmt.Sprint(port)), limit)
	if err != nil {
		return false
	}
	defer c.Close()
	return answers(c, "ping", limit)
}

func answers(c net.Conn, message string, limit time.Duration) bool {
	if _, err := c.Write([]byte(message)); err != nil {
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(limit))
	b := make([]byte, 100)
	n, err := c.Read(b)
	return err == nil && string(b[:n]) == message
}

// expect fails the test unless the host reaches exactly what is listed.
func (h *host) expect(t *testing.T, want bool, to string, port int, networks ...string) {
	t.Helper()
	limit := patience
	if want {
		limit = longPatience
	}
	for _, network := range networks {
		if got := h.reaches(t, network, to, port, limit); got != want {
			t.Errorf("%s port %d of %s: reached %t, want %t", network, port, to, got, want)
		}
	}
}

// expectOf fails the test unless the host reaches the allowed ports of another one, such as "tcp/80", at all its
// addresses, and none of the forbidden ones.
func (h *host) expectOf(t *testing.T, of *host, allowed, forbidden []string) {
	t.Helper()
	for _, address := range []string{of.v4, of.v6} {
		for i, where := range append(allowed, forbidden...) {
			network, text, _ := strings.Cut(where, "/")
			port, err := strconv.Atoi(text)
			must(t, err)
			h.expect(t, i < len(allowed), address, port, network)
		}
	}
}

// pod is the API's object of a host, with its name as label.
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
