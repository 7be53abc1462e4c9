// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import v1 "k8s.io/api/core/v1"

// anyIP is the address that stands for all of a host's addresses.
const anyIP = "0.0.0.0"

// Port is a port of the host which a pod occupies.
type Port struct {
	IP       string
	Protocol v1.Protocol
	Number   int32
}

// Ports counts who occupies which ports of a node.
type Ports map[Port]int

// Free tells whether a port is free: on its own address, and on all addresses.
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

// hostPorts are the ports of the host that a pod occupies for its whole life: those
// of its containers and of its sidecars, not those of init containers which end.
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
