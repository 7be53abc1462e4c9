// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// entry is one object with its watch. It is the store that its reflector fills.
type entry struct {
	pods    sets.Set[types.UID] // guarded by Store.mu
	changed func()
	stop    context.CancelFunc

	mu      sync.Mutex
	current object // nil while there is none
	known   bool   // current is what the API holds, as far as the watch tells
	wanted  bool   // a pod has read it, so that pods want to hear of changes
}

func newEntry(changed func()) *entry {
	return &entry{pods: sets.New[types.UID](), changed: changed}
}

func (e *entry) watch(ctx context.Context, client kubernetes.Interface, k key) {
	ctx, e.stop = context.WithCancel(ctx)
	reflector := cache.NewReflectorWithOptions(
		k.kind.listWatch(client, k.namespace, k.name), k.kind.example(), e,
		cache.ReflectorOptions{Name: "node-" + string(k.kind)})
	go reflector.RunWithContext(ctx)
}

// read returns the object and whether that is known to be the API's state.
func (e *entry) read() (object, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known {
		e.wanted = true
	}
	return e.current, e.known
}

// fetched takes what a direct request returned, and returns the newest known state.
func (e *entry) fetched(o object) object {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wanted = true
	if !e.known && o != nil {
		e.keep(o)
	}
	return e.current
}

// set takes the state the watch saw and tells the pods if it is news to them.
func (e *entry) set(o object) {
	e.mu.Lock()
	e.known = true
	if same(e.current, o) || older(o, e.current) {
		e.mu.Unlock()
		return
	}
	e.keep(o)
	wanted := e.wanted
	e.mu.Unlock()
	if wanted {
		e.changed()
	}
}

// keep stores the object; an immutable one needs no watch any more.
func (e *entry) keep(o object) {
	e.current = o
	if o != nil && immutable(o) {
		e.known = true
		e.stop()
	}
}

func same(a, b object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// older says that a watch which is still catching up delivers less than a
// direct request has already shown.
func older(a, b object) bool {
	if a == nil || b == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// The methods of cache.ReflectorStore.

// Add takes an object that came to be.
func (e *entry) Add(o any) error { e.set(o.(object)); return nil }

// Update takes an object that changed.
func (e *entry) Update(o any) error { e.set(o.(object)); return nil }

// Delete takes an object that went.
func (e *entry) Delete(any) error { e.set(nil); return nil }

// Replace takes the result of a list, which has one item or none.
func (e *entry) Replace(list []any, _ string) error {
	if len(list) == 0 {
		e.set(nil)
		return nil
	}
	e.set(list[0].(object))
	return nil
}

// Resync has nothing to do: state is level-triggered.
func (e *entry) Resync() error { return nil }
