// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// latest holds the results of the binder's own updates until the cache has them, so that the next
// decision does not use an older version.
type latest[T client.Object] struct {
	mu      sync.Mutex
	written map[types.NamespacedName]T
}

// wrote records the result of an update.
func (l *latest[T]) wrote(obj T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written == nil {
		l.written = map[types.NamespacedName]T{}
	}
	l.written[client.ObjectKeyFromObject(obj)] = obj
}

// of returns the newer of a cached object and its last update.
func (l *latest[T]) of(cached T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	written, ok := l.written[key]
	if !ok {
		return cached
	}
	if cached.GetUID() != written.GetUID() || owned.Reached(cached.GetResourceVersion(), written.GetResourceVersion()) {
		delete(l.written, key)
		return cached
	}
	return written
}

// forget drops the update of an object that does not exist any more.
func (l *latest[T]) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.written, key)
}
