// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// port is a port of a Service.
type port struct {
	protocol corev1.Protocol
	number   int32
}

// claim is what only one Service holds: an address of a pool, whose port is the zero value, or one port of a
// node's address.
type claim struct {
	address netip.Addr
	port    port
}

// wish describes what a Service needs.
type wish struct {
	key      types.NamespacedName
	families []corev1.IPFamily
	// required is the address that spec.loadBalancerIP names; invalid if none.
	required netip.Addr
	// current are the addresses of its status.
	current []netip.Addr
	ports   []port
}

func (w wish) wants(a netip.Addr) bool {
	return slices.Contains(w.families, familyOf(a))
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// table records which Service holds which claims.
type table struct {
	// pools are the ranges of addresses; if there are none, Services share addresses.
	pools   []netip.Prefix
	holders map[claim]types.NamespacedName
	held    map[types.NamespacedName][]claim
}

func newTable(pools []netip.Prefix) *table {
	return &table{pools: pools, holders: map[claim]types.NamespacedName{}, held: map[types.NamespacedName][]claim{}}
}

// release releases all claims of a Service.
func (t *table) release(key types.NamespacedName) {
	for _, c := range t.held[key] {
		delete(t.holders, c)
	}
	delete(t.held, key)
}

// keep claims the addresses that a Service has already, except those of other Services.
func (t *table) keep(w wish) {
	for _, a := range w.current {
		if t.has(a) {
			_ = t.take(w, a) // held by another Service: assign finds another one
		}
	}
}

// has reports whether an address may be assigned. Addresses of nodes are checked when they are assigned.
func (t *table) has(a netip.Addr) bool {
	return len(t.pools) == 0 || slices.ContainsFunc(t.pools, func(p netip.Prefix) bool { return p.Contains(a) })
}

// assign returns the addresses of a Service and claims them. On failure the Service holds nothing. Addresses that it
// has already are preferred. The addresses of nodes are used if there are no pools.
func (t *table) assign(w wish, nodes []netip.Addr) ([]netip.Addr, error) {
	t.release(w.key)
	if w.required.IsValid() && !w.wants(w.required) {
		return nil, fmt.Errorf("spec.loadBalancerIP %s is not of an IP family of the Service", w.required)
	}
	assigned, err := t.choose(w, nodes)
	if err != nil {
		t.release(w.key)
		return nil, err
	}
	return assigned, nil
}

func (t *table) choose(w wish, nodes []netip.Addr) ([]netip.Addr, error) {
	if len(t.pools) == 0 {
		return t.share(w, nodes)
	}
	var assigned []netip.Addr
	for _, family := range w.families {
		a, err := t.fromPools(w, family)
		if err != nil {
			return nil, err
		}
		if a.IsValid() {
			assigned = append(assigned, a)
		}
	}
	if len(assigned) == 0 {
		return nil, fmt.Errorf("no pool of load balancers has addresses of the family %s", w.families)
	}
	return assigned, nil
}

// share claims the ports of a Service on the addresses of nodes.
func (t *table) share(w wish, nodes []netip.Addr) ([]netip.Addr, error) {
	var assigned []netip.Addr
	for _, a := range nodes {
		if !w.wants(a) || w.required.IsValid() && familyOf(a) == familyOf(w.required) && a != w.required {
			continue
		}
		if err := t.take(w, a); err != nil {
			return nil, err
		}
		assigned = append(assigned, a)
	}
	switch {
	case w.required.IsValid() && !slices.Contains(assigned, w.required):
		return nil, fmt.Errorf("spec.loadBalancerIP %s is not the address of a node", w.required)
	case len(assigned) == 0:
		return nil, fmt.Errorf("no node has an address of the family %s", w.families)
	}
	return assigned, nil
}

// fromPools claims an address of a family; the zero Addr if no pool has the family.
func (t *table) fromPools(w wish, family corev1.IPFamily) (netip.Addr, error) {
	if w.required.IsValid() && familyOf(w.required) == family {
		if !t.has(w.required) {
			return netip.Addr{}, fmt.Errorf("spec.loadBalancerIP %s is in no pool of load balancers", w.required)
		}
		return w.required, t.take(w, w.required)
	}
	for _, a := range w.current {
		if familyOf(a) == family && t.has(a) && t.take(w, a) == nil {
			return a, nil
		}
	}
	exists := false
	for _, pool := range t.pools {
		if familyOf(pool.Addr()) != family {
			continue
		}
		exists = true
		for a := pool.Masked().Addr(); pool.Contains(a); a = a.Next() {
			if t.take(w, a) == nil {
				return a, nil
			}
		}
	}
	if exists {
		return netip.Addr{}, fmt.Errorf("all addresses of the pools of load balancers are in use")
	}
	return netip.Addr{}, nil
}

// take claims an address for a Service, or its ports on it. It claims all of them or none.
func (t *table) take(w wish, a netip.Addr) error {
	wanted := []claim{{address: a}}
	if len(t.pools) == 0 {
		wanted = nil
		for _, p := range w.ports {
			wanted = append(wanted, claim{a, p})
		}
	}
	for _, c := range wanted {
		by, taken := t.holders[c]
		if !taken || by == w.key {
			continue
		}
		if c.port.number == 0 {
			return fmt.Errorf("address %s is in use by the Service %s", a, by)
		}
		return fmt.Errorf("port %d/%s of address %s is in use by the Service %s", c.port.number, c.port.protocol, a, by)
	}
	for _, c := range wanted {
		if _, own := t.holders[c]; !own {
			t.holders[c] = w.key
			t.held[w.key] = append(t.held[w.key], c)
		}
	}
	return nil
}
