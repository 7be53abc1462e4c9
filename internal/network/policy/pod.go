// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// pod has the properties of a pod that policies depend on. A node with its addresses is one as well.
type pod struct {
	key, namespace string
	created        time.Time
	uid            string
	labels         labels.Set
	// claimed are the addresses of the pod's status, addresses those of them that no newer pod has.
	claimed, addresses []netip.Addr
	// ports are the numbers of named ports.
	ports map[namedPort][]string
	local bool
	// isNode is set for a node. Its namespace is empty, and its addresses are not claimed: pods may have them, too.
	isNode bool

	sets map[*set]struct{}
	// selectedBy has the keys of the policies that isolate the pod.
	selectedBy [directions]map[string]struct{}
	groups     [directions]*group
}

// podOf returns nil if policies do not concern the pod: it has no address of its own, or none any more.
func podOf(p *corev1.Pod, node string) *pod {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	result := newPod(p.ObjectMeta, podKey(p.Namespace, p.Name))
	result.local = p.Spec.NodeName == node
	ips := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	result.claim(ips)
	for _, c := range p.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			result.namePorts(c.Ports)
		}
	}
	for _, c := range p.Spec.Containers {
		result.namePorts(c.Ports)
	}
	if len(result.claimed) == 0 {
		return nil
	}
	return result
}

func podKey(namespace, name string) string { return "pod " + namespace + "/" + name }

func newPod(m metav1.ObjectMeta, key string) *pod {
	return &pod{
		key: key, namespace: m.Namespace, created: m.CreationTimestamp.Time, uid: string(m.UID), labels: m.Labels,
		ports: map[namedPort][]string{}, sets: map[*set]struct{}{},
		selectedBy: [directions]map[string]struct{}{{}, {}},
	}
}

// The DNS server of the cluster has no pods: the process itself answers. To policies it is a pod with the labels by which
// they usually name it.
const (
	dnsNamespace = metav1.NamespaceSystem
	dnsService   = "kube-dns"
)

// dnsOf returns the pod that stands for the endpoints without a pod in a slice of the DNS Service; nil if there
// are none.
func dnsOf(s *discoveryv1.EndpointSlice) *pod {
	if s.Namespace != dnsNamespace || s.Labels[discoveryv1.LabelServiceName] != dnsService {
		return nil
	}
	result := newPod(s.ObjectMeta, sliceKey(s.Namespace, s.Name))
	result.labels = labels.Set{"k8s-app": dnsService}
	for _, e := range s.Endpoints {
		if e.TargetRef == nil {
			result.claim(e.Addresses)
		}
	}
	for _, p := range s.Ports {
		if p.Port != nil {
			result.namePort(ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP), *p.Port)
		}
	}
	if len(result.claimed) == 0 {
		return nil
	}
	return result
}

// nodeOf returns a node as a peer.
func nodeOf(n *corev1.Node) *pod {
	result := newPod(n.ObjectMeta, nodeKey(n.Name))
	result.isNode = true
	var ips []string
	for _, a := range n.Status.Addresses {
		ips = append(ips, a.Address) // host names are ignored like malformed addresses
	}
	result.claim(ips)
	result.addresses, result.claimed = result.claimed, nil
	return result
}

func nodeKey(name string) string { return "node " + name }

func sliceKey(namespace, name string) string { return "slice " + namespace + "/" + name }

// claim adds addresses. Malformed ones are ignored.
func (p *pod) claim(ips []string) {
	for _, ip := range ips {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			continue
		}
		if a = a.Unmap().WithZone(""); !slices.Contains(p.claimed, a) {
			p.claimed = append(p.claimed, a)
		}
	}
}

func (p *pod) namePorts(ports []corev1.ContainerPort) {
	for _, port := range ports {
		p.namePort(port.Name, port.Protocol, port.ContainerPort)
	}
}

func (p *pod) namePort(name string, protocol corev1.Protocol, number int32) {
	if name == "" {
		return
	}
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	key, text := namedPort{protocol, name}, strconv.Itoa(int(number))
	if !slices.Contains(p.ports[key], text) {
		p.ports[key] = append(p.ports[key], text)
	}
}

// same reports whether policies treat both alike.
func (p *pod) same(other *pod) bool {
	if p.isNode && !slices.Equal(p.addresses, other.addresses) {
		return false
	}
	return p.namespace == other.namespace && p.uid == other.uid && p.created.Equal(other.created) && p.local == other.local &&
		maps.Equal(p.labels, other.labels) && slices.Equal(p.claimed, other.claimed) &&
		maps.EqualFunc(p.ports, other.ports, slices.Equal[[]string])
}

// newer reports whether the pod is newer than another one that has the same address: the older one has lost it,
// even if its status does not say so yet.
func (p *pod) newer(than *pod) bool {
	if !p.created.Equal(than.created) {
		return p.created.After(than.created)
	}
	return p.uid+p.key > than.uid+than.key
}
