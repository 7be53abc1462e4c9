// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// Share is the resources and host ports that one pod takes of its node.
type Share struct {
	requests v1.ResourceList
	ports    []hostPort
}

type hostPort struct {
	address  string
	protocol v1.Protocol
	number   int32
}

const allAddresses = "0.0.0.0"

var onePod = resource.MustParse("1")

// ShareOf returns the share that the pod asks for.
func ShareOf(p *v1.Pod) Share { return shareOf(p, resourcehelper.PodResourcesOptions{}) }

// usedShareOf returns the share of a pod on the node. While a resize shrinks the pod, that is what it still has.
func usedShareOf(p *v1.Pod) Share {
	return shareOf(p, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
}

func shareOf(p *v1.Pod, options resourcehelper.PodResourcesOptions) Share {
	s := Share{requests: resourcehelper.PodRequests(p, options)}
	s.requests[v1.ResourcePods] = onePod
	for i := range p.Spec.InitContainers {
		// An init container that exits does not keep its ports; a sidecar does.
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			s.addPorts(c)
		}
	}
	for i := range p.Spec.Containers {
		s.addPorts(&p.Spec.Containers[i])
	}
	return s
}

func (s *Share) addPorts(c *v1.Container) {
	for _, port := range c.Ports {
		if port.HostPort > 0 {
			s.ports = append(s.ports, hostPort{
				address: cmp.Or(port.HostIP, allAddresses), protocol: cmp.Or(port.Protocol, v1.ProtocolTCP), number: port.HostPort,
			})
		}
	}
}

// Load is the sum of the shares of a node's pods. The zero value is the load of an idle node.
type Load struct {
	requests v1.ResourceList
	ports    []hostPort
}

// LoadOf returns the load of these pods.
func LoadOf(pods []*v1.Pod) *Load {
	load := &Load{}
	for _, p := range pods {
		load.Add(usedShareOf(p))
	}
	return load
}

// Add adds a pod's share.
func (l *Load) Add(s Share) {
	if l.requests == nil {
		l.requests = v1.ResourceList{}
	}
	for name, quantity := range s.requests {
		sum := l.requests[name]
		sum.Add(quantity)
		l.requests[name] = sum
	}
	l.ports = append(l.ports, s.ports...)
}

// Remove removes a share that was added.
func (l *Load) Remove(s Share) {
	for name, quantity := range s.requests {
		rest := l.requests[name]
		rest.Sub(quantity)
		l.requests[name] = rest
	}
	for _, port := range s.ports {
		if i := slices.Index(l.ports, port); i >= 0 {
			l.ports = slices.Delete(l.ports, i, i+1)
		}
	}
}

// The resources that every node has, in the order of the kubelet's checks.
var common = []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}

// outOf begins the reasons of refusals for a resource.
const outOf = "OutOf"

// Shortfall is a resource of which a node has less left than a pod requests.
type Shortfall struct {
	Name v1.ResourceName
	// Amount is what is missing, in the unit of messages: CPU in millicores, everything else in units.
	Amount int64

	requested, used, capacity int64
}

// Shortfalls returns the resources of which a node with this load does not have as much left as the share requests, in the
// order of the kubelet's checks.
func (l *Load) Shortfalls(s Share, allocatable v1.ResourceList) []Shortfall {
	names := slices.Clone(common)
	for _, name := range slices.Sorted(maps.Keys(s.requests)) {
		// Resources that the node does not have are not accounted for by the node.
		if _, known := allocatable[name]; known && !slices.Contains(common, name) {
			names = append(names, name)
		}
	}
	var short []Shortfall
	for _, name := range names {
		requested, used, capacity := amount(name, s.requests), amount(name, l.requests), amount(name, allocatable)
		if requested == 0 || used+requested <= capacity {
			continue
		}
		short = append(short, Shortfall{name, used + requested - capacity, requested, used, capacity})
	}
	return short
}

func (l *Load) checkResources(s Share, allocatable v1.ResourceList) *pod.Refusal {
	short := l.Shortfalls(s, allocatable)
	if len(short) == 0 {
		return nil
	}
	first := short[0]
	return &pod.Refusal{Reason: outOf + string(first.Name), Message: fmt.Sprintf(
		"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		first.Name, first.requested, first.used, first.capacity)}
}

// IsShort reports whether a pod is refused because the node is short of a resource.
func IsShort(refusal *pod.Refusal) bool { return strings.HasPrefix(refusal.Reason, outOf) }

// Amount returns how much the share takes of a resource, in the unit of a Shortfall.
func (s Share) Amount(name v1.ResourceName) int64 { return amount(name, s.requests) }

// amount returns a quantity in the unit of messages: CPU in millicores, everything else in units.
func amount(name v1.ResourceName, list v1.ResourceList) int64 {
	quantity := list[name]
	if name == v1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

func (l *Load) checkPorts(s Share) *pod.Refusal {
	for _, port := range s.ports {
		if slices.ContainsFunc(l.ports, port.conflicts) {
			return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
		}
	}
	return nil
}

// conflicts reports whether two pods on one node cannot have these ports.
func (p hostPort) conflicts(other hostPort) bool {
	sameAddress := p.address == other.address || p.address == allAddresses || other.address == allAddresses
	return sameAddress && p.protocol == other.protocol && p.number == other.number
}
