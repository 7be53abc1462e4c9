// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Node returns the node of a number. Its addresses follow those of the pods.
func (w World) Node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", i), Labels: w.labels()}}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: n.Name},
		{Type: corev1.NodeInternalIP, Address: fmt.Sprint("10.0.0.", Pods+i)},
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd00::%x", Pods+i)},
	}
	return n
}

// ClusterPolicy returns a random ClusterNetworkPolicy.
func (w World) ClusterPolicy(i int) *v1alpha2.ClusterNetworkPolicy {
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

func (w World) action() v1alpha2.ClusterNetworkPolicyRuleAction {
	return pick(w, v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny, v1alpha2.ClusterNetworkPolicyRuleActionPass)
}

func (w World) clusterPods() (*metav1.LabelSelector, *v1alpha2.NamespacedPod) {
	if w.IntN(2) == 0 {
		return w.selector(), nil
	}
	return nil, &v1alpha2.NamespacedPod{NamespaceSelector: *w.selector(), PodSelector: *w.selector()}
}

func (w World) destination() v1alpha2.ClusterNetworkPolicyEgressPeer {
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

func (w World) protocols() (protocols []v1alpha2.ClusterNetworkPolicyProtocol) {
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

// WithTiers returns random objects, of which at least one is a ClusterNetworkPolicy.
func (w World) WithTiers() Objects {
	all := w.Objects()
	all.Policies = all.Policies[:w.IntN(len(all.Policies)+1)]
	for i := range 1 + w.IntN(5) {
		all.Cluster = append(all.Cluster, w.ClusterPolicy(i))
	}
	for i := range 2 {
		all.Nodes = append(all.Nodes, w.Node(i))
	}
	return all
}
