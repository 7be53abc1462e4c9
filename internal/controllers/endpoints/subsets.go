// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but still served to clients that read them.

package endpoints

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/util"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// capacity is the maximum number of addresses in an Endpoints object.
const capacity = 1000

// backend is a selected pod with its address.
type backend struct {
	address corev1.EndpointAddress
	ready   bool
	pod     *corev1.Pod
}

// subsetsOf returns the subsets of a Service's Endpoints in canonical form: ports of the same
// pods are in one subset, and everything is sorted. truncated is true if there are more than
// capacity addresses; ready ones are kept first.
func subsetsOf(service *corev1.Service, all []*corev1.Pod) (subsets []corev1.EndpointSubset, truncated bool) {
	backends := backendsOf(service, all)
	type group struct {
		ports   []corev1.EndpointPort
		members []backend
	}
	groups := map[string]*group{}
	var order []string
	add := func(port *corev1.EndpointPort, members []backend) {
		var key strings.Builder
		for _, m := range members {
			fmt.Fprintf(&key, "%s/%s ", m.address.IP, m.pod.UID)
		}
		g := groups[key.String()]
		if g == nil {
			g = &group{members: members}
			groups[key.String()], order = g, append(order, key.String())
		}
		if port != nil {
			g.ports = append(g.ports, *port)
		}
	}
	if len(service.Spec.Ports) == 0 && service.Spec.ClusterIP == corev1.ClusterIPNone && len(backends) > 0 {
		add(nil, backends)
	}
	for _, offer := range offers(service, backends) {
		add(&offer.port, offer.members)
	}
	ready := 0
	for _, key := range order {
		for _, m := range groups[key].members {
			if m.ready {
				ready++
			}
		}
	}
	ready = min(ready, capacity)
	notReady := capacity - ready
	for _, key := range order {
		g := groups[key]
		subset := corev1.EndpointSubset{Ports: g.ports}
		for _, m := range g.members {
			switch {
			case m.ready && ready > 0:
				subset.Addresses, ready = append(subset.Addresses, m.address), ready-1
			case !m.ready && notReady > 0:
				subset.NotReadyAddresses, notReady = append(subset.NotReadyAddresses, m.address), notReady-1
			default:
				truncated = true
			}
		}
		if len(subset.Addresses)+len(subset.NotReadyAddresses) > 0 {
			subsets = append(subsets, subset)
		}
	}
	return subsets, truncated
}

// offer is a port and the pods that serve it.
type offer struct {
	port    corev1.EndpointPort
	members []backend
}

// offers returns the Service's ports with the pods that serve them. A named target port may have
// a different number in each pod.
func offers(service *corev1.Service, backends []backend) []offer {
	var out []offer
	for i := range service.Spec.Ports {
		sp := &service.Spec.Ports[i]
		first := len(out)
		for _, b := range backends {
			number, err := endpointslice.FindPort(b.pod, sp)
			if err != nil {
				continue
			}
			at := slices.IndexFunc(out[first:], func(o offer) bool { return o.port.Port == int32(number) })
			if at < 0 {
				at = len(out) - first
				out = append(out, offer{port: corev1.EndpointPort{
					Name: sp.Name, Port: int32(number), Protocol: sp.Protocol, AppProtocol: sp.AppProtocol,
				}})
			}
			out[first+at].members = append(out[first+at].members, b)
		}
	}
	slices.SortStableFunc(out, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.port.Port, b.port.Port), cmp.Compare(a.port.Protocol, b.port.Protocol), cmp.Compare(a.port.Name, b.port.Name))
	})
	return out
}

// backendsOf returns the pods with an address of the Service's family, ordered by address.
func backendsOf(service *corev1.Service, all []*corev1.Pod) []backend {
	var out []backend
	for _, pod := range all {
		if !util.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		ip := addressOf(service, pod)
		if ip == "" {
			continue
		}
		address := corev1.EndpointAddress{
			IP:        ip,
			NodeName:  ptr.To(pod.Spec.NodeName),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		if util.ShouldSetHostname(pod, service) {
			address.Hostname = pod.Spec.Hostname
		}
		out = append(out, backend{address, service.Spec.PublishNotReadyAddresses || pods.IsReady(pod), pod})
	}
	slices.SortFunc(out, func(a, b backend) int {
		return cmp.Or(cmp.Compare(a.address.IP, b.address.IP), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	return out
}

// addressOf returns the pod's IP of the Service's first family, or "".
func addressOf(service *corev1.Service, pod *corev1.Pod) string {
	v6 := netutils.IsIPv6String(pod.Status.PodIP)
	switch ip := service.Spec.ClusterIP; {
	case len(service.Spec.IPFamilies) > 0:
		v6 = service.Spec.IPFamilies[0] == corev1.IPv6Protocol
	case ip != "" && ip != corev1.ClusterIPNone:
		v6 = netutils.IsIPv6String(ip)
	}
	for _, podIP := range pod.Status.PodIPs {
		if ip := netutils.ParseIPSloppy(podIP.IP); ip != nil && netutils.IsIPv6(ip) == v6 {
			return ip.String()
		}
	}
	return ""
}
