// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// peer selects pods: the ones that a rule names, or those of them with a certain named port. Or it selects nodes.
type peer struct {
	// nodes is set if nodes are selected, by their labels, and no pods.
	nodes labels.Selector
	// namespace is the policy's own, if the peer has no selector of namespaces.
	namespace  string
	namespaces labels.Selector
	pods       labels.Selector
	// spans limit the pods to those with an address in one of them, if a block is combined with a named port.
	spans []span
	// port is set if only a named port of the pods is meant.
	port *namedPort
}

type namedPort struct {
	protocol corev1.Protocol
	name     string
}

func selectorPeer(namespace string, p networkingv1.NetworkPolicyPeer) (peer, error) {
	selected := peer{namespace: namespace, pods: labels.Everything()}
	var err error
	if p.NamespaceSelector != nil {
		selected.namespace = ""
		if selected.namespaces, err = metav1.LabelSelectorAsSelector(p.NamespaceSelector); err != nil {
			return peer{}, err
		}
	}
	if p.PodSelector != nil {
		if selected.pods, err = metav1.LabelSelectorAsSelector(p.PodSelector); err != nil {
			return peer{}, err
		}
	}
	return selected, nil
}

// anyPod selects all pods of the cluster.
func anyPod() peer { return peer{namespaces: labels.Everything(), pods: labels.Everything()} }

func (p peer) withPort(port namedPort) peer {
	p.port = &port
	return p
}

// id is the same for peers that select the same.
func (p peer) id() string {
	if p.nodes != nil {
		return "nodes " + p.nodes.String()
	}
	var b strings.Builder
	if p.namespaces == nil {
		b.WriteString("namespace " + p.namespace)
	} else {
		b.WriteString("namespaces " + p.namespaces.String())
	}
	b.WriteString(" pods " + p.pods.String())
	for _, f := range families {
		b.WriteString(" " + f.elements(p.spans))
	}
	if p.port != nil {
		b.WriteString(" port " + string(p.port.protocol) + " " + p.port.name)
	}
	return b.String()
}

func (p peer) setName(f family) string {
	kind := "peers"
	if p.port != nil {
		kind = "ports"
	}
	return kind + f.suffix + "-" + hash(p.id())
}

func (p peer) matchesNamespace(name string, of labels.Set) bool {
	if p.namespaces == nil {
		return p.namespace == name
	}
	return p.namespaces.Matches(of)
}

// selects reports whether the peer selects a pod or node, whose namespace has the labels.
func (p peer) selects(candidate *pod, namespace labels.Set) bool {
	if p.nodes != nil || candidate.isNode {
		return p.nodes != nil && candidate.isNode && p.nodes.Matches(candidate.labels)
	}
	return p.matchesNamespace(candidate.namespace, namespace) && p.pods.Matches(candidate.labels) &&
		(p.port == nil || len(candidate.ports[*p.port]) > 0)
}

// keys returns the elements of one of a pod's addresses in the peer's set.
func (p peer) keys(of *pod, a netip.Addr) []string {
	if p.spans != nil && !contains(p.spans, a) {
		return nil
	}
	if p.port == nil {
		return []string{a.String()}
	}
	var keys []string
	for _, number := range of.ports[*p.port] {
		keys = append(keys, a.String()+" . "+protocol(p.port.protocol)+" . "+number)
	}
	return keys
}

// protocol returns nft's name of a protocol.
func protocol(p corev1.Protocol) string { return strings.ToLower(string(p)) }
