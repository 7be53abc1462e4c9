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

// Put replaces the fragment of a source. If several sources have an item with different values, the first source
// to put it keeps its value.
func (c *Content) Put(source string, f Fragment) {
	old := c.sources[source]
	if len(f.Chains)+len(f.Sets)+len(f.Elements) == 0 {
		delete(c.sources, source)
	} else {
		c.sources[source] = f
	}
	for name := range old.Chains {
		if _, kept := f.Chains[name]; !kept {
			c.chains.withdraw(name, source)
		}
	}
	for name := range old.Sets {
		if _, kept := f.Sets[name]; !kept {
			c.sets.withdraw(name, source)
		}
	}
	for e := range old.Elements {
		if _, kept := f.Elements[e]; !kept {
			c.elems.withdraw(e, source)
		}
	}
	for name, chain := range f.Chains {
		c.chains.claim(name, source, chain.definition())
	}
	for name, set := range f.Sets {
		c.sets.claim(name, source, set)
	}
	for e, value := range f.Elements {
		c.elems.claim(e, source, value)
	}
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

// items are the values that sources claim for keys, and the values that the kernel has.
type items[K, V comparable] struct {
	wanted map[K]claims[V]
	// dirty has the keys whose value may have changed since they were written, with the value that the
	// kernel has; nil if it has none.
	dirty map[K]*V
}

// claims are the claims to one key: the first one wins. Nearly all keys have just one.
type claims[V comparable] struct {
	first claim[V]
	more  []claim[V]
}

type claim[V comparable] struct {
	source string
	value  V
}

func newItems[K, V comparable]() items[K, V] {
	return items[K, V]{wanted: map[K]claims[V]{}, dirty: map[K]*V{}}
}

// claim adds or changes a source's claim.
func (i items[K, V]) claim(key K, source string, value V) {
	present, ok := i.wanted[key]
	switch {
	case !ok:
		i.touch(key)
		i.wanted[key] = claims[V]{first: claim[V]{source, value}}
	case present.first.source == source:
		if present.first.value == value {
			return
		}
		i.touch(key)
		present.first.value = value
		i.wanted[key] = present
	default:
		at := slices.IndexFunc(present.more, func(c claim[V]) bool { return c.source == source })
		if at < 0 {
			present.more = append(present.more, claim[V]{source, value})
		} else {
			present.more[at].value = value
		}
		i.wanted[key] = present
	}
}

// withdraw removes a source's claim.
func (i items[K, V]) withdraw(key K, source string) {
	present := i.wanted[key]
	switch {
	case present.first.source != source:
		present.more = slices.DeleteFunc(present.more, func(c claim[V]) bool { return c.source == source })
		i.wanted[key] = present
	case len(present.more) == 0:
		i.touch(key)
		delete(i.wanted, key)
	default:
		i.touch(key)
		present.first, present.more = present.more[0], present.more[1:]
		i.wanted[key] = present
	}
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

// change is what to do about one key.
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
