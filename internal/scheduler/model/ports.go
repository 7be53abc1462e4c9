// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import v1 "k8s.io/api/core/v1"

// anyIP stands for all addresses of a host.
const anyIP = "0.0.0.0"

// Port is a host port of a pod.
type Port struct {
	IP       string
	Protocol v1.Protocol
	Number   int32
}

// Ports counts the pods on each host port of a node.
type Ports map[Port]int

// Free reports whether a port is free, on its own address and on all addresses.
func (p Ports) Free(port Port) bool {
	if p[port] > 0 {
		return false
	}
	if port.IP != anyIP {
		port.IP = anyIP
		return p[port] == 0
	}
	for used := range p {
		if used.Number == port.Number && used.Protocol == port.Protocol {
			return false
		}
	}
	return true
}

func (p Ports) add(ports []Port) {
	for _, port := range ports {
		p[port]++
	}
}

func (p Ports) remove(ports []Port) {
	for _, port := range ports {
		if p[port]--; p[port] <= 0 {
			delete(p, port)
		}
	}
}

// hostPorts returns the host ports that a pod uses as long as it runs: the host ports of its
// containers and sidecars, but not of other init containers.
func hostPorts(pod *v1.Pod) []Port {
	var ports []Port
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			ports = appendHostPorts(ports, c)
		}
	}
	for i := range pod.Spec.Containers {
		ports = appendHostPorts(ports, &pod.Spec.Containers[i])
	}
	return ports
}

func appendHostPorts(ports []Port, c *v1.Container) []Port {
	for _, p := range c.Ports {
		if p.HostPort <= 0 {
			continue
		}
		port := Port{IP: p.HostIP, Protocol: p.Protocol, Number: p.HostPort}
		if port.IP == "" {
			port.IP = anyIP
		}
		if port.Protocol == "" {
			port.Protocol = v1.ProtocolTCP
		}
		ports = append(ports, port)
	}
	return ports
}
