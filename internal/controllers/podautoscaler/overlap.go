// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// known is the memory of the autoscalers between two passes.
type known struct {
	mu sync.Mutex
	of map[types.NamespacedName]*autoscaler
}

// autoscaler is one of them.
type autoscaler struct {
	uid types.UID
	// seen is set once its target was found.
	seen bool
	// selector is that of its target's pods, as of its last pass; nil before.
	selector labels.Selector
	memory   memory
}

// get returns what is remembered of an autoscaler. One pass of an autoscaler runs at a time, and owns
// its memory.
func (k *known) get(key types.NamespacedName, uid types.UID) *autoscaler {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[types.NamespacedName]*autoscaler{}
	}
	if k.of[key] == nil || k.of[key].uid != uid {
		k.of[key] = &autoscaler{uid: uid}
	}
	return k.of[key]
}

func (k *known) forget(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, key)
}

// overlaps remembers an autoscaler's selector and returns the first two of the autoscalers that select
// one of the pods, if there are more than one: two autoscalers of the same pods would count each other's
// changes as load.
func (k *known) overlaps(key types.NamespacedName, selector labels.Selector, pods []*corev1.Pod) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of[key] != nil {
		k.of[key].selector = selector
	}
	var found []types.NamespacedName
	for other, a := range k.of {
		if other.Namespace == key.Namespace && a.selector != nil &&
			slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return a.selector.Matches(labels.Set(p.Labels)) }) {
			found = append(found, other)
		}
	}
	if len(found) < 2 {
		return ""
	}
	slices.SortFunc(found, func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) })
	// Upstream prints its keys: name and namespace.
	return fmt.Sprintf("[{%s %s} {%s %s}]", found[0].Name, found[0].Namespace, found[1].Name, found[1].Namespace)
}
