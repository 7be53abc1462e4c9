// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kindred-project/kindred/internal/node/topology"
)

// Device is a device of a resource.
type Device struct {
	ID      string
	Healthy bool
	Nodes   topology.Mask // the NUMA nodes that it is near; none if the plugin does not say
}

// Request is a request for devices of one resource.
type Request struct {
	Resource string
	Count    int
	// Used are the devices that containers have, except those in Reusable: the devices of init containers of the same
	// pod, which end before the container starts.
	Used, Reusable sets.Set[string]
	// Nodes are the NUMA nodes that the topology policy chose, or none.
	Nodes topology.Mask
}

// prefer returns which of the available devices a plugin prefers (GetPreferredAllocation).
type prefer func(available, mustInclude []string, count int) ([]string, error)

// choose returns the devices for a request: reusable ones first, then those near the chosen NUMA nodes, and of these
// those that the plugin prefers.
func choose(r Request, devices map[string]Device, preferred prefer) ([]string, error) {
	healthy := sets.New[string]()
	for id, d := range devices {
		if d.Healthy {
			healthy.Insert(id)
		}
	}
	if healthy.Len() == 0 {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", r.Resource)
	}
	c := &choice{count: r.Count, chosen: sets.New[string]()}
	if c.take(r.Reusable.Intersection(healthy)) {
		return c.ids(), nil
	}
	available := healthy.Difference(r.Used).Difference(r.Reusable)
	if missing := c.missing(); available.Len() < missing {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", r.Resource, missing, available.Len())
	}
	near, far, elsewhere := byDistance(available, devices, r.Nodes)
	if near.Len() <= c.missing() {
		c.take(near)
		near = available
	}
	if c.missing() > 0 {
		ids, err := preferred(sets.List(near.Union(c.chosen)), sets.List(c.chosen), c.count)
		if err != nil {
			return nil, err
		}
		c.take(sets.New(ids...).Intersection(near))
	}
	for _, rest := range []sets.Set[string]{near.Difference(far).Difference(elsewhere), far, elsewhere} {
		c.take(rest)
	}
	return c.ids(), nil
}

// choice is a set of devices that grows to count.
type choice struct {
	count  int
	chosen sets.Set[string]
}

func (c *choice) missing() int  { return c.count - c.chosen.Len() }
func (c *choice) ids() []string { return sets.List(c.chosen) }

// take adds devices, in the order of their IDs, until there are enough, and reports whether there are.
func (c *choice) take(devices sets.Set[string]) bool {
	for _, id := range sets.List(devices) {
		if c.missing() > 0 {
			c.chosen.Insert(id)
		}
	}
	return c.missing() == 0
}

// byDistance divides devices into those near the nodes, those near others, and those without a node. If no nodes were
// chosen or no device of the resource has any, all are without.
func byDistance(available sets.Set[string], devices map[string]Device, nodes topology.Mask) (near, far, elsewhere sets.Set[string]) {
	near, far, elsewhere = sets.New[string](), sets.New[string](), sets.New[string]()
	for id := range available {
		switch on := devices[id].Nodes; {
		case nodes == 0 || on == 0:
			elsewhere.Insert(id)
		case on&nodes != 0:
			near.Insert(id)
		default:
			far.Insert(id)
		}
	}
	return near, far, elsewhere
}

// hints returns the NUMA nodes that have devices for a request; nil if no device has a node.
func hints(r Request, devices map[string]Device, all topology.Mask) topology.Hints {
	on := topology.Mask(0)
	for _, d := range devices {
		on |= d.Nodes & all
	}
	if on == 0 {
		return nil
	}
	found, least := topology.Hints{}, on.Count()
	for _, nodes := range on.Subsets() {
		total, free, keeps := 0, 0, true
		for id, d := range devices {
			if d.Nodes&nodes == 0 {
				keeps = keeps && (!r.Reusable.Has(id) || d.Nodes == 0)
				continue
			}
			total++
			if d.Healthy && (!r.Used.Has(id) || r.Reusable.Has(id)) {
				free++
			}
		}
		if total >= r.Count {
			least = min(least, nodes.Count())
		}
		if keeps && free >= r.Count {
			found = append(found, topology.Hint{Nodes: nodes})
		}
	}
	for i := range found {
		found[i].Preferred = found[i].Nodes.Count() == least
	}
	return found
}

// changed returns the devices that are new, gone, or of another health.
func changed(before, now map[string]Device) []string {
	ids := sets.New[string]()
	for id, d := range before {
		if other, has := now[id]; !has || other.Healthy != d.Healthy {
			ids.Insert(id)
		}
	}
	for id := range now {
		if _, known := before[id]; !known {
			ids.Insert(id)
		}
	}
	return sets.List(ids)
}
