// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"net/netip"
	"sync"
)

// Gate lets the start of a pod wait until its policies are in force.
type Gate struct {
	mutex   sync.Mutex
	known   map[netip.Addr]struct{}
	changed chan struct{}
}

// NewGate returns a Gate that knows no addresses.
func NewGate() *Gate { return &Gate{changed: make(chan struct{})} }

// Set records that the rules of exactly these addresses are in the kernel.
func (g *Gate) Set(known []netip.Addr) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.known = make(map[netip.Addr]struct{}, len(known))
	for _, a := range known {
		g.known[a] = struct{}{}
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

// Wait returns when the rules of an address are in the kernel, or with the error of the context.
func (g *Gate) Wait(ctx context.Context, a netip.Addr) error {
	for {
		g.mutex.Lock()
		_, known := g.known[a]
		changed := g.changed
		g.mutex.Unlock()
		if known {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
