// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"sync"

	"github.com/kindred-project/kindred/internal/network/policy"
)

// changes collects the changes in the API since the rules were compiled.
type changes struct {
	// services are keys, namespace and name, of Services that changed themselves or whose slices changed.
	services map[string]bool
	// hostPorts are keys of pods of this node that have host ports.
	hostPorts map[string]bool
	// surroundings is set when the node or the ranges of Services changed.
	surroundings bool
	// nodes is set when nodes changed.
	nodes bool
	// policies are the changes of objects that NetworkPolicies depend on, in order.
	policies []func(*policy.Compiler)
	// newPolicies is set when NetworkPolicies were added or changed.
	newPolicies bool
}

// inbox collects changes until they are taken. Changes during a write are combined into the next.
type inbox struct {
	mutex   *sync.Mutex
	changes *changes
	// wake has a message when there are changes.
	wake chan struct{}
}

func noChanges() *changes {
	return &changes{services: map[string]bool{}, hostPorts: map[string]bool{}}
}

func newInbox() inbox {
	return inbox{mutex: new(sync.Mutex), changes: noChanges(), wake: make(chan struct{}, 1)}
}

func (i inbox) service(key string) {
	i.note(func(c *changes) { c.services[key] = true })
}

func (i inbox) hostPorts(key string) {
	i.note(func(c *changes) { c.hostPorts[key] = true })
}

func (i inbox) surroundings() {
	i.note(func(c *changes) { c.surroundings = true })
}

// nodes notes that nodes may have changed: which of them can announce addresses, and the ranges of their pods.
func (i inbox) nodes() { i.note(func(c *changes) { c.nodes = true }) }

func (i inbox) policy(change func(*policy.Compiler)) {
	i.note(func(c *changes) { c.policies = append(c.policies, change) })
}

// newPolicy notes a NetworkPolicy that was added or changed. It calls close before the change can be taken.
func (i inbox) newPolicy(change func(*policy.Compiler), close func()) {
	i.note(func(c *changes) {
		c.policies, c.newPolicies = append(c.policies, change), true
		close()
	})
}

// look calls f with the changes that have not been taken. No other change is noted meanwhile.
func (i inbox) look(f func(pending *changes)) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	f(i.changes)
}

func (i inbox) note(change func(*changes)) {
	i.mutex.Lock()
	change(i.changes)
	i.mutex.Unlock()
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i inbox) take() changes {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	taken := *i.changes
	*i.changes = *noChanges()
	return taken
}
