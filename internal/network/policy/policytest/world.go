// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policytest has random objects and connections for tests of NetworkPolicies, and an interpreter of the fragments that
// package policy compiles. It does not import package policy, whose own tests import it.
package policytest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Pods is the number of pods of a World.
const Pods = 10

// Objects are the objects of a World. They convert to policy.Objects, which has the same fields.
type Objects struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Slices     []*discoveryv1.EndpointSlice
	Policies   []*networkingv1.NetworkPolicy
	Nodes      []*corev1.Node
	Cluster    []*v1alpha2.ClusterNetworkPolicy
}

// World makes random objects of a small universe, so that selectors, ports and addresses often meet.
type World struct{ *rand.Rand }

// NewWorld returns the World of a seed.
func NewWorld(seed uint64) World { return World{rand.New(rand.NewPCG(seed, 1))} }

func pick[T any](w World, from ...T) T { return from[w.IntN(len(from))] }

func (w World) labels() map[string]string {
	l := map[string]string{}
	for _, key := range []string{"a", "b"} {
		if w.IntN(3) > 0 {
			l[key] = pick(w, "x", "y")
		}
	}
	return l
}

func (w World) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	switch w.IntN(4) {
	case 0:
		s.MatchLabels = map[string]string{pick(w, "a", "b"): pick(w, "x", "y")}
	case 1:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: pick(w, "a", "b"), Operator: pick(w, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: []string{pick(w, "x", "y")}}}
	case 2:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: pick(w, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}}
	}
	return s
}

// Namespace returns the namespace of a number, with random labels.
func (w World) Namespace(i int) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: w.labels()}}
}

// Pod returns the pod of a number, in one of three namespaces. It is on "node" or on "other". It has an address of its own in
// each family, because package policy decides elsewhere which pod has a contested one.
func (w World) Pod(i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: fmt.Sprint("n", i%3), Labels: w.labels()},
		Spec:       corev1.PodSpec{NodeName: pick(w, "node", "node", "other"), HostNetwork: w.IntN(12) == 0},
		Status:     corev1.PodStatus{Phase: pick(w, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed)},
	}
	if w.IntN(10) > 0 {
		p.Status.PodIP = fmt.Sprint("10.0.0.", i)
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}, {IP: fmt.Sprintf("fd00::%x", i)}}
	}
	for _, name := range []string{"web", "dns"} {
		if w.IntN(3) > 0 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: name, ContainerPort: int32(80 + w.IntN(3)), Protocol: w.protocol()}}})
		}
	}
	return p
}

func (w World) protocol() corev1.Protocol {
	return pick(w, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

// Policy returns a random NetworkPolicy in one of three namespaces.
func (w World) Policy(i int) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("np", i), Namespace: fmt.Sprint("n", w.IntN(3))}}
	np.Spec.PodSelector = *w.selector()
	in, out := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	np.Spec.PolicyTypes = pick(w, nil, []networkingv1.PolicyType{in}, []networkingv1.PolicyType{out}, []networkingv1.PolicyType{in, out})
	for range w.IntN(3) {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: w.peers(), Ports: w.ports()})
	}
	for range w.IntN(3) {
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: w.peers(), Ports: w.ports()})
	}
	return np
}

func (w World) peers() (peers []networkingv1.NetworkPolicyPeer) {
	for range w.IntN(3) {
		switch w.IntN(4) {
		case 0:
			peers = append(peers, networkingv1.NetworkPolicyPeer{PodSelector: w.selector()})
		case 1:
			peers = append(peers, networkingv1.NetworkPolicyPeer{NamespaceSelector: w.selector()})
		case 2:
			peers = append(peers, networkingv1.NetworkPolicyPeer{NamespaceSelector: w.selector(), PodSelector: w.selector()})
		default:
			peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: pick(w, &networkingv1.IPBlock{CIDR: "10.0.0.0/24", Except: []string{"10.0.0.4/30", "10.0.0.6/32"}},
				&networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/29"}}, &networkingv1.IPBlock{CIDR: "10.0.0.5/32"},
				&networkingv1.IPBlock{CIDR: "::/0"}, &networkingv1.IPBlock{CIDR: "fd00::/124", Except: []string{"fd00::2/127"}})})
		}
	}
	return peers
}

func (w World) ports() (ports []networkingv1.NetworkPolicyPort) {
	for range w.IntN(3) {
		p := networkingv1.NetworkPolicyPort{Protocol: pick(w, nil, ptr.To(w.protocol()))}
		switch w.IntN(4) {
		case 0:
			p.Port = ptr.To(intstr.FromInt32(int32(80 + w.IntN(3))))
		case 1:
			p.Port, p.EndPort = ptr.To(intstr.FromInt32(80)), ptr.To(int32(80+w.IntN(3)))
		case 2:
			p.Port = ptr.To(intstr.FromString(pick(w, "web", "dns")))
		}
		ports = append(ports, p)
	}
	return ports
}

// Objects returns random namespaces, pods and NetworkPolicies.
func (w World) Objects() Objects {
	var all Objects
	for i := range 3 {
		all.Namespaces = append(all.Namespaces, w.Namespace(i))
	}
	for i := range Pods {
		all.Pods = append(all.Pods, w.Pod(i))
	}
	for i := range 1 + w.IntN(6) {
		all.Policies = append(all.Policies, w.Policy(i))
	}
	return all
}

// Connection returns a random connection between two addresses, given by their last numbers.
func (w World) Connection(from, to int) Connection {
	format := "10.0.0.%d"
	if w.IntN(3) == 0 {
		format = "fd00::%x"
	}
	address := func(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, n)) }
	return Connection{address(from), address(to), w.protocol(), 79 + w.IntN(5)}
}
