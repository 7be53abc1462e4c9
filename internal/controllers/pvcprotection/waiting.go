// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pvcprotection

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waiting are the claims to look at, by namespace.
type waiting struct {
	mu    sync.Mutex
	names map[string]sets.Set[string]
}

// add returns the request that wakes for the claims: that of their namespace.
func (w *waiting) add(namespace string, claims ...string) []reconcile.Request {
	if len(claims) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names == nil {
		w.names = map[string]sets.Set[string]{}
	}
	if w.names[namespace] == nil {
		w.names[namespace] = sets.New[string]()
	}
	w.names[namespace].Insert(claims...)
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace}}}
}

// take returns the claims of a namespace, which wait no more.
func (w *waiting) take(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := sets.List(w.names[namespace])
	delete(w.names, namespace)
	return names
}
