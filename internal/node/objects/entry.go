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

// entry is one object and its watch. Its reflector uses it as its store.
type entry struct {
	pods    sets.Set[types.UID] // guarded by Store.mu
	changed func()
	stop    context.CancelFunc

	mu      sync.Mutex
	current object // nil if it does not exist
	synced  bool   // the watch keeps current up to date
	read    bool   // a pod has read current, so that pods are notified of changes
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

// get returns the object, and whether the watch keeps it up to date.
func (e *entry) get() (o object, synced bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.synced {
		e.read = true
	}
	return e.current, e.synced
}

// fetched takes the object that a GET returned, or nil, and returns the newest known state.
func (e *entry) fetched(o object) object {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read = true
	if !e.synced && o != nil {
		e.store(o)
	}
	return e.current
}

// set takes the state from the watch, and notifies pods if it differs from what they have read.
func (e *entry) set(o object) {
	e.mu.Lock()
	e.synced = true
	if isSame(e.current, o) || isOlder(o, e.current) {
		e.mu.Unlock()
		return
	}
	e.store(o)
	notify := e.read
	e.mu.Unlock()
	if notify {
		e.changed()
	}
}

// store stores the object, and stops the watch of an immutable one.
func (e *entry) store(o object) {
	e.current = o
	if o != nil && isImmutable(o) {
		e.synced = true
		e.stop()
	}
}

func isSame(a, b object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// isOlder reports whether a is older than b. A watch that is still catching up can deliver an older
// object than an earlier GET.
func isOlder(a, b object) bool {
	if a == nil || b == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// Add implements cache.ReflectorStore.
func (e *entry) Add(o any) error { e.set(o.(object)); return nil }

// Update implements cache.ReflectorStore.
func (e *entry) Update(o any) error { e.set(o.(object)); return nil }

// Delete implements cache.ReflectorStore.
func (e *entry) Delete(any) error { e.set(nil); return nil }

// Replace implements cache.ReflectorStore. The list has one object or none.
func (e *entry) Replace(list []any, _ string) error {
	if len(list) == 0 {
		e.set(nil)
		return nil
	}
	e.set(list[0].(object))
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing.
func (e *entry) Resync() error { return nil }
