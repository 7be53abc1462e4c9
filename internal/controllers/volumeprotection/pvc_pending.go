// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeprotection

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// pending holds the claims to reconcile, by namespace.
type pending struct {
	mu    sync.Mutex
	names map[string]sets.Set[string]
}

// add adds claims and returns the request for their namespace.
func (p *pending) add(namespace string, claims ...string) []reconcile.Request {
	if len(claims) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = map[string]sets.Set[string]{}
	}
	if p.names[namespace] == nil {
		p.names[namespace] = sets.New[string]()
	}
	p.names[namespace].Insert(claims...)
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace}}}
}

// take removes and returns the claims of a namespace.
func (p *pending) take(namespace string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := sets.List(p.names[namespace])
	delete(p.names, namespace)
	return names
}
