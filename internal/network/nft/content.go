// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Content is the union of the fragments of many sources. It is not safe for concurrent use.
type Content struct {
	sources map[string]Fragment
	chains  items[string, chain]
	sets    items[string, Set]
	elems   items[Element, string]
}

// NewContent returns empty content.
func NewContent() *Content {
	return &Content{
		sources: map[string]Fragment{},
		chains:  newItems[string, chain](),
		sets:    newItems[string, Set](),
		elems:   newItems[Element, string](),
	}
}

// Put replaces the fragment of a source. If sources have an item with different values, the value that was put first
// stays until none of them has it any more.
func (c *Content) Put(source string, f Fragment) {
	old := c.sources[source]
	if len(f.Chains)+len(f.Sets)+len(f.Elements) == 0 {
		delete(c.sources, source)
	} else {
		c.sources[source] = f
	}
	replace(c.chains, definitions(old.Chains), definitions(f.Chains))
	replace(c.sets, old.Sets, f.Sets)
	replace(c.elems, old.Elements, f.Elements)
}

// Remove removes the fragment of a source.
func (c *Content) Remove(source string) { c.Put(source, Fragment{}) }

// Sources returns the sources that have a fragment, sorted.
func (c *Content) Sources() []string { return slices.Sorted(maps.Keys(c.sources)) }

// Changed reports whether there is something to write.
func (c *Content) Changed() bool {
	return len(c.chains.dirty)+len(c.sets.dirty)+len(c.elems.dirty) > 0
}

// chain is a comparable form of a Chain.
type chain struct {
	hook  Hook
	rules string
}

func (c Chain) definition() chain {
	d := chain{rules: strings.Join(c.Rules, "\n")}
	if c.Hook != nil {
		d.hook = *c.Hook
	}
	return d
}

// each returns the rules of a chain.
func (c chain) each() []string {
	if c.rules == "" {
		return nil
	}
	return strings.Split(c.rules, "\n")
}

func definitions(chains map[string]Chain) map[string]chain {
	all := make(map[string]chain, len(chains))
	for name, c := range chains {
		all[name] = c.definition()
	}
	return all
}

// items are the values that sources want for keys, and the values that the kernel has.
type items[K, V comparable] struct {
	wanted map[K]claims[V]
	// dirty has the keys whose value may have changed since they were written, with the value that the
	// kernel has; nil if it has none.
	dirty map[K]*V
}

// claims are the values that sources want for one key, with the number of sources. The first one wins; nearly all
// keys have just one.
type claims[V comparable] struct {
	first claim[V]
	more  []claim[V]
}

type claim[V comparable] struct {
	value V
	count int
}

func newItems[K, V comparable]() items[K, V] {
	return items[K, V]{wanted: map[K]claims[V]{}, dirty: map[K]*V{}}
}

// replace replaces the values that one source wants.
func replace[K, V comparable](i items[K, V], old, now map[K]V) {
	for key, value := range old {
		if kept, ok := now[key]; !ok || kept != value {
			i.withdraw(key, value)
		}
	}
	for key, value := range now {
		if had, ok := old[key]; !ok || had != value {
			i.claim(key, value)
		}
	}
}

// claim counts one more source that wants a value.
func (i items[K, V]) claim(key K, value V) {
	present, ok := i.wanted[key]
	switch {
	case !ok:
		i.touch(key)
		present.first = claim[V]{value, 1}
	case present.first.value == value:
		present.first.count++
	default:
		at := slices.IndexFunc(present.more, func(c claim[V]) bool { return c.value == value })
		if at < 0 {
			present.more = append(present.more, claim[V]{value, 1})
		} else {
			present.more[at].count++
		}
	}
	i.wanted[key] = present
}

// withdraw counts one source less that wants a value.
func (i items[K, V]) withdraw(key K, value V) {
	present := i.wanted[key]
	if present.first.value != value {
		at := slices.IndexFunc(present.more, func(c claim[V]) bool { return c.value == value })
		if present.more[at].count--; present.more[at].count == 0 {
			present.more = slices.Delete(present.more, at, at+1)
		}
		i.wanted[key] = present
		return
	}
	if present.first.count--; present.first.count > 0 {
		i.wanted[key] = present
		return
	}
	i.touch(key)
	if len(present.more) == 0 {
		delete(i.wanted, key)
		return
	}
	i.wanted[key] = claims[V]{first: present.more[0], more: present.more[1:]}
}

// touch records the value that the kernel has, before it changes.
func (i items[K, V]) touch(key K) {
	if _, already := i.dirty[key]; already {
		return
	}
	i.dirty[key] = nil
	if present, ok := i.wanted[key]; ok {
		i.dirty[key] = &present.first.value
	}
}

// value returns the wanted value of a key.
func (i items[K, V]) value(key K) (V, bool) {
	present, ok := i.wanted[key]
	return present.first.value, ok
}

// written records that the kernel has all wanted values.
func (i items[K, V]) written() { clear(i.dirty) }

// change has the old and the new value of a key.
type change[K, V comparable] struct {
	key      K
	old, now *V
}

func (c change[K, V]) String() string { return fmt.Sprint(c.key) }

// changes returns the differences between what the kernel has and what is wanted, sorted by key so that
// transactions are reproducible.
func (i items[K, V]) changes(order func(a, b K) int) []change[K, V] {
	var all []change[K, V]
	for key, old := range i.dirty {
		now, ok := i.value(key)
		switch {
		case !ok && old == nil, ok && old != nil && *old == now:
			continue
		case ok:
			all = append(all, change[K, V]{key, old, &now})
		default:
			all = append(all, change[K, V]{key: key, old: old})
		}
	}
	slices.SortFunc(all, func(a, b change[K, V]) int { return order(a.key, b.key) })
	return all
}
