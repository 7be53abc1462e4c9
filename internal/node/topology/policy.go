// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"slices"
	"strconv"
)

// The policies (topologyManagerPolicy).
const (
	None           = "none"
	BestEffort     = "best-effort"
	Restricted     = "restricted"
	SingleNUMANode = "single-numa-node"
)

// The scopes (topologyManagerScope): whether hints are merged for each container or for a pod as a whole.
const (
	ContainerScope = "container"
	PodScope       = "pod"
)

const (
	preferClosestNUMANodes = "prefer-closest-numa-nodes"
	maxAllowableNUMANodes  = "max-allowable-numa-nodes"
)

// defaultMaxNodes is the number of NUMA nodes up to which the sets of nodes are few enough to consider each.
const defaultMaxNodes = 8

// Policy decides which hints are the best, and which are good enough.
type Policy struct {
	Name, Scope   string
	preferClosest bool
	maxNodes      int
	machine       *Machine
}

// ParsePolicy returns a policy from the fields of a KubeletConfiguration.
func ParsePolicy(name, scope string, options map[string]string) (*Policy, error) {
	if !slices.Contains([]string{None, BestEffort, Restricted, SingleNUMANode}, name) {
		return nil, fmt.Errorf("topologyManagerPolicy is %q, and must be none, best-effort, restricted or single-numa-node", name)
	}
	if scope != ContainerScope && scope != PodScope {
		return nil, fmt.Errorf("topologyManagerScope is %q, and must be container or pod", scope)
	}
	p := &Policy{Name: name, Scope: scope, maxNodes: defaultMaxNodes}
	for option, value := range options {
		if err := p.setOption(option, value); err != nil {
			return nil, fmt.Errorf("topologyManagerPolicyOptions: %w", err)
		}
	}
	return p, nil
}

func (p *Policy) setOption(option, value string) (err error) {
	switch option {
	case preferClosestNUMANodes:
		if p.preferClosest, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("bad value for option %q: %w", option, err)
		}
	case maxAllowableNUMANodes:
		if p.maxNodes, err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("unable to convert policy option to integer %q: %w", option, err)
		}
		if p.maxNodes < defaultMaxNodes {
			return fmt.Errorf("the minimum value of %q should not be less than %d", option, defaultMaxNodes)
		}
	default:
		return fmt.Errorf("unknown Topology Manager Policy option: %q", option)
	}
	return nil
}

// On returns the policy for a machine, or why the machine does not allow it.
func (p *Policy) On(m *Machine) (*Policy, error) {
	if p.Name != None && len(m.Nodes) > p.maxNodes {
		return nil, fmt.Errorf("topologyManagerPolicy %s is unsupported on machines with more than %d NUMA Nodes; this one has %d. See the option %s",
			p.Name, p.maxNodes, len(m.Nodes), maxAllowableNUMANodes)
	}
	onMachine := *p
	onMachine.machine = m
	return &onMachine, nil
}
