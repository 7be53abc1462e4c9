// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policyoracle

import (
	"context"
	"net"
	"net/netip"
	"testing"
	_ "unsafe" // for linkname

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	npafake "sigs.k8s.io/network-policy-api/pkg/client/clientset/versioned/fake"
	npainformers "sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"

	"github.com/kindred-project/kindred/internal/network/policy"
	"github.com/kindred-project/kindred/internal/network/policy/policytest"
)

// packet has the fields of the engine's type of this name, in the same order. TestLayoutOfPackets compares them.
type packet struct {
	id               uint32
	family           corev1.IPFamily
	srcIP, dstIP     net.IP
	proto            corev1.Protocol
	srcPort, dstPort int
	payload          []byte
}

// The engine is exported only by Controller.Run, which reads packets from a queue of the kernel.
//
//go:linkname evaluatePacket sigs.k8s.io/kube-network-policies/pkg/networkpolicy.(*Controller).evaluatePacket
func evaluatePacket(c *networkpolicy.Controller, ctx context.Context, p packet) bool

//go:linkname parsePacket sigs.k8s.io/kube-network-policies/pkg/networkpolicy.parsePacket
func parsePacket(b []byte) (packet, error)

// engine is a controller of kube-network-policies that is not running. The test fills the stores of its informers.
type engine struct {
	controller                 *networkpolicy.Controller
	namespaces, pods, policies cache.Store
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	client, npaClient := fake.NewClientset(), npafake.NewClientset()
	all := informers.NewSharedInformerFactory(client, 0)
	npa := npainformers.NewSharedInformerFactory(npaClient, 0).Policy().V1alpha1()
	core, policies := all.Core().V1(), all.Networking().V1().NetworkPolicies()
	// NRI stays enabled: without it, version 0.8.0 panics at addresses that no pod has. It connects to the runtime only in Run.
	c, err := networkpolicy.NewController(client, policies, core.Namespaces(), core.Pods(), core.Nodes(), npaClient,
		npa.AdminNetworkPolicies(), npa.BaselineAdminNetworkPolicies(), networkpolicy.Config{NodeName: "node"})
	if err != nil {
		t.Fatal(err)
	}
	return &engine{c, core.Namespaces().Informer().GetStore(), core.Pods().Informer().GetStore(), policies.Informer().GetStore()}
}

// load replaces the objects of the engine.
func (e *engine) load(t *testing.T, all policy.Objects) {
	t.Helper()
	replace(t, e.namespaces, all.Namespaces)
	replace(t, e.pods, canonical(withoutEnded(all.Pods)))
	replace(t, e.policies, defaulted(all.Policies))
}

func replace[T any](t *testing.T, in cache.Store, objects []T) {
	t.Helper()
	var all []any
	for _, o := range objects {
		all = append(all, o)
	}
	if err := in.Replace(all, ""); err != nil {
		t.Fatal(err)
	}
}

// allows reports whether the engine accepts the first packet of a connection.
func (e *engine) allows(ctx context.Context, c policytest.Connection) bool {
	p := packet{
		family: corev1.IPv4Protocol, srcIP: net.IP(c.Client.AsSlice()), dstIP: net.IP(c.Server.AsSlice()),
		proto: c.Protocol, srcPort: clientPort, dstPort: c.Port,
	}
	if c.Server.Is6() {
		p.family = corev1.IPv6Protocol
	}
	return evaluatePacket(e.controller, ctx, p)
}

// clientPort is none of those that policies and containers of a World name.
const clientPort = 40000

// withoutEnded returns the pods that have not ended. The engine lets an ended pod keep its address until the pod is deleted
// or another one runs with the address. Kindred does not, because another pod may have the address already.
func withoutEnded(pods []*corev1.Pod) []*corev1.Pod {
	var running []*corev1.Pod
	for _, p := range pods {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			running = append(running, p)
		}
	}
	return running
}

// canonical returns the pods with the canonical form of their addresses, which is the one that runtimes report. The engine
// compares addresses as text: "fd00::0" is not "fd00::" to it.
func canonical(pods []*corev1.Pod) []*corev1.Pod {
	var all []*corev1.Pod
	for _, p := range pods {
		p = p.DeepCopy()
		for i, ip := range p.Status.PodIPs {
			p.Status.PodIPs[i].IP = netip.MustParseAddr(ip.IP).String()
		}
		all = append(all, p)
	}
	return all
}

// defaulted returns the policies as the API server stores them: the engine relies on the defaults of policyTypes and protocol,
// while package policy has them itself.
func defaulted(policies []*networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy {
	var stored []*networkingv1.NetworkPolicy
	for _, np := range policies {
		np = np.DeepCopy()
		if len(np.Spec.PolicyTypes) == 0 {
			np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			if len(np.Spec.Egress) > 0 {
				np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			}
		}
		for _, r := range np.Spec.Ingress {
			defaultProtocols(r.Ports)
		}
		for _, r := range np.Spec.Egress {
			defaultProtocols(r.Ports)
		}
		stored = append(stored, np)
	}
	return stored
}

func defaultProtocols(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			tcp := corev1.ProtocolTCP
			ports[i].Protocol = &tcp
		}
	}
}
