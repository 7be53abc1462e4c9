// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/kindred-project/kindred/internal/network/policy/policytest"
)

// modelTier is what the API documents for a tier of ClusterNetworkPolicies (policy.networking.k8s.io/v1alpha2). final
// is not set if the next tier decides.
func modelTier(all Objects, tier v1alpha2.Tier, d networkingv1.PolicyType, isolated, remote *corev1.Pod, c policytest.Connection) (allow, final bool) {
	policies := slices.DeleteFunc(slices.Clone(all.Cluster), func(p *v1alpha2.ClusterNetworkPolicy) bool { return p.Spec.Tier != tier })
	slices.SortFunc(policies, func(a, b *v1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	server := podWith(all, c.Server)
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

func modelDestination(all Objects, p v1alpha2.ClusterNetworkPolicyEgressPeer, remote *corev1.Pod, c policytest.Connection) bool {
	for _, cidr := range p.Networks {
		if netip.MustParsePrefix(string(cidr)).Contains(c.Server) {
			return true
		}
	}
	for _, n := range all.Nodes {
		for _, a := range n.Status.Addresses {
			if p.Nodes != nil && selects(p.Nodes, n.Labels) && a.Address == c.Server.String() {
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

func modelProtocols(protocols []v1alpha2.ClusterNetworkPolicyProtocol, server *corev1.Pod, c policytest.Connection) bool {
	for _, p := range protocols {
		var at *v1alpha2.Port
		switch {
		case p.TCP != nil && c.Protocol == corev1.ProtocolTCP:
			at = p.TCP.DestinationPort
		case p.UDP != nil && c.Protocol == corev1.ProtocolUDP:
			at = p.UDP.DestinationPort
		case p.SCTP != nil && c.Protocol == corev1.ProtocolSCTP:
			at = p.SCTP.DestinationPort
		default:
			if p.DestinationNamedPort != "" && server != nil && hasNamed(server, p.DestinationNamedPort, c) {
				return true
			}
			continue
		}
		if at == nil || int(at.Number) == c.Port || at.Range != nil && int(at.Range.Start) <= c.Port && c.Port <= int(at.Range.End) {
			return true
		}
	}
	return len(protocols) == 0
}

func hasNamed(server *corev1.Pod, name string, c policytest.Connection) bool {
	for _, container := range server.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name == name && p.Protocol == c.Protocol && int(p.ContainerPort) == c.Port {
				return true
			}
		}
	}
	return false
}

func TestTiersAllowWhatTheAPIDocuments(t *testing.T) {
	allowed, denied, overridden := 0, 0, 0
	for seed := range uint64(600) {
		w := policytest.NewWorld(seed)
		all := Objects(w.WithTiers())
		fragments, _ := Compile(options, all)
		kernel := policytest.Load(fragments)
		without := all
		without.Cluster = nil
		for range 300 {
			from, to := w.IntN(policytest.Pods+1), w.IntN(policytest.Pods+3)
			c := w.Connection(from, to)
			got, want := kernel.Allows(c), modelAllows(all, "node", c)
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
