// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package hostport

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Mapping is a host port of a pod in one IP family.
type Mapping struct {
	// Host is the address of the node at which the port is open; 0.0.0.0 or :: stands for all of the family.
	Host     netip.Addr
	Protocol v1.Protocol
	Port     uint16
	// To is the pod's address and the container's port.
	To netip.AddrPort
}

// Wanted reports whether a pod has host ports that are translated: those of its containers and sidecars, unless it is
// in the node's network.
func Wanted(pod *v1.Pod) bool { return !pod.Spec.HostNetwork && len(portsOf(pod)) > 0 }

// Uses reports whether a pod has a host port of a protocol that is translated.
func Uses(pod *v1.Pod, protocol v1.Protocol) bool {
	return !pod.Spec.HostNetwork && slices.ContainsFunc(portsOf(pod), func(p v1.ContainerPort) bool { return p.Protocol == protocol })
}

// Of returns the host ports of a pod. There are none before it has an address, and none after it has ended.
func Of(pod *v1.Pod) []Mapping {
	if !Wanted(pod) || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return nil
	}
	var all []Mapping
	for _, address := range Addresses(pod) {
		for _, port := range portsOf(pod) {
			host, ok := hostOf(port.HostIP, address)
			if !ok {
				continue
			}
			m := Mapping{host, port.Protocol, uint16(port.HostPort), netip.AddrPortFrom(address, uint16(port.ContainerPort))}
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	return all
}

// Addresses returns the addresses in a pod's status, at most one of each family. Malformed ones are ignored.
func Addresses(pod *v1.Pod) []netip.Addr {
	list := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		list = append(list, ip.IP)
	}
	var all []netip.Addr
	for _, s := range list {
		a, err := netip.ParseAddr(s)
		if err != nil {
			continue
		}
		a = a.Unmap()
		if !slices.ContainsFunc(all, func(other netip.Addr) bool { return other.Is4() == a.Is4() }) {
			all = append(all, a)
		}
	}
	return all
}

// portsOf returns the host ports that a pod has as long as it runs, which the scheduler reserves: not those of init
// containers that exit.
func portsOf(pod *v1.Pod) []v1.ContainerPort {
	var ports []v1.ContainerPort
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				p.Protocol = cmp.Or(p.Protocol, v1.ProtocolTCP)
				ports = append(ports, p)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; ptr.Deref(c.RestartPolicy, "") == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return ports
}

// hostOf returns the address at which a port with a hostIP is open for a pod's address; false if it is of another
// family. Without a hostIP, all addresses of the pod's family count.
func hostOf(hostIP string, pod netip.Addr) (netip.Addr, bool) {
	if hostIP == "" {
		if pod.Is4() {
			return netip.IPv4Unspecified(), true
		}
		return netip.IPv6Unspecified(), true
	}
	host, err := netip.ParseAddr(hostIP)
	if err != nil {
		return netip.Addr{}, false
	}
	host = host.Unmap()
	return host, host.Is4() == pod.Is4()
}
