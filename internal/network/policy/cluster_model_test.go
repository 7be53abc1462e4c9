// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// modelTier is what the API documents for a tier of ClusterNetworkPolicies (policy.networking.k8s.io/v1alpha2). final
// is not set if the next tier decides.
func modelTier(all Objects, tier v1alpha2.Tier, d networkingv1.PolicyType, isolated, remote *corev1.Pod, c conn) (allow, final bool) {
	policies := slices.DeleteFunc(slices.Clone(all.Cluster), func(p *v1alpha2.ClusterNetworkPolicy) bool { return p.Spec.Tier != tier })
	slices.SortFunc(policies, func(a, b *v1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	server := podWith(all, c.server)
	for _, p := range policies {
		if !modelPods(all, p.Spec.Subject.Namespaces, p.Spec.Subject.Pods, isolated) {
			continue
		}
		if d == networkingv1.PolicyTypeIngress {
			for _, r := range p.Spec.Ingress {
				from := slices.ContainsFunc(r.From, func(p v1alpha2.ClusterNetworkPolicyIngressPeer) bool {
					return modelPods(all, p.Namespaces, p.Pods, remote)
				})
				if from && modelProtocols(r.Protocols, server, c) {
					return modelAction(r.Action)
				}
			}
			continue
		}
		for _, r := range p.Spec.Egress {
			if modelClosed(r) {
				if r.Action == v1alpha2.ClusterNetworkPolicyRuleActionAccept {
					continue
				}
				return false, true
			}
			to := slices.ContainsFunc(r.To, func(p v1alpha2.ClusterNetworkPolicyEgressPeer) bool {
				return modelDestination(all, p, remote, c) && modelProtocols(r.Protocols, namedOf(p, server), c)
			})
			if to {
				return modelAction(r.Action)
			}
		}
	}
	return false, false
}

func modelAction(a v1alpha2.ClusterNetworkPolicyRuleAction) (allow, final bool) {
	return a == v1alpha2.ClusterNetworkPolicyRuleActionAccept, a != v1alpha2.ClusterNetworkPolicyRuleActionPass
}

// modelClosed reports whether a rule has a peer without a field, which is one of a later version of the API.
func modelClosed(r v1alpha2.ClusterNetworkPolicyEgressRule) bool {
	return slices.ContainsFunc(r.To, func(p v1alpha2.ClusterNetworkPolicyEgressPeer) bool {
		return p.Namespaces == nil && p.Pods == nil && p.Nodes == nil && len(p.Networks) == 0
	})
}

// namedOf returns the pod whose named ports a rule with the peer may mean: nodes have none.
func namedOf(p v1alpha2.ClusterNetworkPolicyEgressPeer, server *corev1.Pod) *corev1.Pod {
	if p.Nodes != nil {
		return nil
	}
	return server
}

func modelDestination(all Objects, p v1alpha2.ClusterNetworkPolicyEgressPeer, remote *corev1.Pod, c conn) bool {
	for _, cidr := range p.Networks {
		if netip.MustParsePrefix(string(cidr)).Contains(c.server) {
			return true
		}
	}
	for _, n := range all.Nodes {
		for _, a := range n.Status.Addresses {
			if p.Nodes != nil && selects(p.Nodes, n.Labels) && a.Address == c.server.String() {
				return true
			}
		}
	}
	return modelPods(all, p.Namespaces, p.Pods, remote)
}

func modelPods(all Objects, namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod, of *corev1.Pod) bool {
	if of == nil {
		return false
	}
	i := slices.IndexFunc(all.Namespaces, func(ns *corev1.Namespace) bool { return ns.Name == of.Namespace })
	if namespaces != nil {
		return selects(namespaces, all.Namespaces[i].Labels)
	}
	return pods != nil && selects(&pods.NamespaceSelector, all.Namespaces[i].Labels) && selects(&pods.PodSelector, of.Labels)
}

func modelProtocols(protocols []v1alpha2.ClusterNetworkPolicyProtocol, server *corev1.Pod, c conn) bool {
	for _, p := range protocols {
		var at *v1alpha2.Port
		switch {
		case p.TCP != nil && c.protocol == corev1.ProtocolTCP:
			at = p.TCP.DestinationPort
		case p.UDP != nil && c.protocol == corev1.ProtocolUDP:
			at = p.UDP.DestinationPort
		case p.SCTP != nil && c.protocol == corev1.ProtocolSCTP:
			at = p.SCTP.DestinationPort
		default:
			if p.DestinationNamedPort != "" && server != nil && hasNamed(server, p.DestinationNamedPort, c) {
				return true
			}
			continue
		}
		if at == nil || int(at.Number) == c.port || at.Range != nil && int(at.Range.Start) <= c.port && c.port <= int(at.Range.End) {
			return true
		}
	}
	return len(protocols) == 0
}

func hasNamed(server *corev1.Pod, name string, c conn) bool {
	for _, container := range server.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name == name && p.Protocol == c.protocol && int(p.ContainerPort) == c.port {
				return true
			}
		}
	}
	return false
}

func (w world) node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", i), Labels: w.labels()}}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: n.Name},
		{Type: corev1.NodeInternalIP, Address: fmt.Sprint("10.0.0.", podsOfWorld+i)},
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd00::%x", podsOfWorld+i)},
	}
	return n
}

func (w world) clusterPolicy(i int) *v1alpha2.ClusterNetworkPolicy {
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cnp", i)}}
	p.Spec.Tier = pick(w, v1alpha2.AdminTier, v1alpha2.BaselineTier)
	p.Spec.Priority = int32(w.IntN(3))
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = w.clusterPods()
	for range w.IntN(4) {
		r := v1alpha2.ClusterNetworkPolicyIngressRule{Action: w.action(), Protocols: w.protocols()}
		for range 1 + w.IntN(2) {
			namespaces, pods := w.clusterPods()
			r.From = append(r.From, v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: namespaces, Pods: pods})
		}
		p.Spec.Ingress = append(p.Spec.Ingress, r)
	}
	for range w.IntN(4) {
		r := v1alpha2.ClusterNetworkPolicyEgressRule{Action: w.action(), Protocols: w.protocols()}
		for range 1 + w.IntN(2) {
			r.To = append(r.To, w.destination())
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

func (w world) action() v1alpha2.ClusterNetworkPolicyRuleAction {
	return pick(w, v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny, v1alpha2.ClusterNetworkPolicyRuleActionPass)
}

func (w world) clusterPods() (*metav1.LabelSelector, *v1alpha2.NamespacedPod) {
	if w.IntN(2) == 0 {
		return w.selector(), nil
	}
	return nil, &v1alpha2.NamespacedPod{NamespaceSelector: *w.selector(), PodSelector: *w.selector()}
}

func (w world) destination() v1alpha2.ClusterNetworkPolicyEgressPeer {
	var p v1alpha2.ClusterNetworkPolicyEgressPeer
	switch w.IntN(8) {
	case 0:
		p.Nodes = w.selector()
	case 1, 2:
		p.Networks = pick(w, []v1alpha2.CIDR{"10.0.0.0/29", "10.0.0.4/30"}, []v1alpha2.CIDR{"0.0.0.0/0"}, []v1alpha2.CIDR{"10.0.0.5/32", "fd00::/125"})
	case 3:
		if w.IntN(3) == 0 {
			p.DomainNames = []v1alpha2.DomainName{"example.com"}
			break
		}
		fallthrough
	default:
		p.Namespaces, p.Pods = w.clusterPods()
	}
	return p
}

func (w world) protocols() (protocols []v1alpha2.ClusterNetworkPolicyProtocol) {
	for range w.IntN(3) {
		at := pick(w, nil, &v1alpha2.Port{Number: int32(80 + w.IntN(3))}, &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: 80, End: int32(81 + w.IntN(2))}})
		protocols = append(protocols, pick(w,
			v1alpha2.ClusterNetworkPolicyProtocol{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: at}},
			v1alpha2.ClusterNetworkPolicyProtocol{UDP: &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: at}},
			v1alpha2.ClusterNetworkPolicyProtocol{SCTP: &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: at}},
			v1alpha2.ClusterNetworkPolicyProtocol{DestinationNamedPort: pick(w, "web", "dns")}))
	}
	return protocols
}

// withTiers returns random objects, of which at least one is a ClusterNetworkPolicy.
func (w world) withTiers() Objects {
	all := w.objects()
	all.Policies = all.Policies[:w.IntN(len(all.Policies)+1)]
	for i := range 1 + w.IntN(5) {
		all.Cluster = append(all.Cluster, w.clusterPolicy(i))
	}
	for i := range 2 {
		all.Nodes = append(all.Nodes, w.node(i))
	}
	return all
}

func TestTiersAllowWhatTheAPIDocuments(t *testing.T) {
	allowed, denied, overridden := 0, 0, 0
	for seed := range uint64(600) {
		w := newWorld(seed)
		all := w.withTiers()
		fragments, _ := Compile(options, all)
		without := all
		without.Cluster = nil
		for range 300 {
			from, to := w.IntN(podsOfWorld+1), w.IntN(podsOfWorld+3)
			c := w.connection(from, to)
			got, want := kernelAllows(fragments, c), modelAllows(all, "node", c)
			if got != want {
				t.Fatalf("seed %d, %v: got %t, want %t", seed, c, got, want)
			}
			if want {
				allowed++
			} else {
				denied++
			}
			if want != modelAllows(without, "node", c) {
				overridden++
			}
		}
	}
	if min(allowed, denied, overridden) < 1000 {
		t.Errorf("only %d allowed, %d denied, %d that NetworkPolicies alone decide otherwise", allowed, denied, overridden)
	}
}
