// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Member is an address of a pod. Another pod may have had the address before.
type Member struct {
	Pod     types.UID
	Address netip.Addr
}

// Gate lets the start of a pod wait until its policies, or other rules of it, are in force.
type Gate struct {
	mutex sync.Mutex
	// open is set while the cluster has no policies.
	open    bool
	known   map[Member]struct{}
	changed chan struct{}
}

// NewGate returns a closed Gate without members.
func NewGate() *Gate { return &Gate{changed: make(chan struct{})} }

// Close makes pods wait that are not members: there is a policy, which may not be in force yet.
func (g *Gate) Close() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.open = false
}

// Set records that the rules of exactly these members are in the kernel. If open is set, there are no policies, and
// other pods need not wait either.
func (g *Gate) Set(known []Member, open bool) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.known = make(map[Member]struct{}, len(known))
	for _, m := range known {
		g.known[m] = struct{}{}
	}
	g.open = open
	close(g.changed)
	g.changed = make(chan struct{})
}

// Wait returns nil when the rules of a member are in the kernel or the cluster has no policies, or else the cause
// with which the context ended.
func (g *Gate) Wait(ctx context.Context, m Member) error {
	for {
		passes, changed := g.passes(m)
		if passes {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// passes reports whether a member need not wait. If it has to, changed is closed at the next change.
func (g *Gate) passes(m Member) (passes bool, changed <-chan struct{}) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	_, known := g.known[m]
	return known || g.open, g.changed
}
