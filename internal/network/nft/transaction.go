// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"
)

// update adds to a transaction what changes a table that has the content as last written. Chains and sets come
// first, because rules and elements name them, and go last: sets before chains, because maps name chains.
func (c *Content) update(tx *knftables.Transaction) {
	chains := c.chains.changes(strings.Compare)
	sets := c.sets.changes(strings.Compare)
	for _, s := range sets {
		if s.now != nil {
			tx.Add(setObject(s.key, *s.now))
		}
	}
	for _, ch := range chains {
		if ch.now != nil {
			tx.Add(chainObject(ch.key, *ch.now))
		}
		if ch.old != nil {
			tx.Flush(&knftables.Chain{Name: ch.key})
		}
	}
	elements := c.elems.changes(compareElements)
	for _, e := range elements {
		if set, present := c.sets.value(e.key.Set); e.old != nil && present {
			tx.Delete(elementObject(set, e.key, *e.old))
		}
	}
	for _, ch := range chains {
		if ch.now != nil {
			addRules(tx, ch.key, *ch.now)
		}
	}
	for _, e := range elements {
		if set, present := c.sets.value(e.key.Set); e.now != nil && present {
			tx.Add(elementObject(set, e.key, *e.now))
		}
	}
	for _, s := range sets {
		if s.now == nil {
			tx.Delete(setObject(s.key, *s.old))
		}
	}
	for _, ch := range chains {
		if ch.now == nil {
			tx.Delete(&knftables.Chain{Name: ch.key})
		}
	}
}

// present has the names of the chains, sets and maps that a table has.
type present struct{ chains, sets, maps []string }

// replace adds to a transaction what changes a table of unknown content, of which only the names are known.
// Elements that rules added stay in sets that stay.
func (c *Content) replace(tx *knftables.Transaction, have present) {
	tx.Add(&knftables.Table{})
	for _, name := range have.chains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	c.replaceSets(tx, have.sets, false)
	c.replaceSets(tx, have.maps, true)
	for name, ch := range c.chains.wanted {
		tx.Add(chainObject(name, ch.first.value))
	}
	for name, s := range c.sets.wanted {
		tx.Add(setObject(name, s.first.value))
	}
	for name, ch := range c.chains.wanted {
		addRules(tx, name, ch.first.value)
	}
	c.addElements(tx)
	for _, name := range have.chains {
		if _, wanted := c.chains.wanted[name]; !wanted {
			tx.Delete(&knftables.Chain{Name: name})
		}
	}
}

// batch is the number of elements that one command adds. A command for each element takes nft twice the time.
const batch = 500

// addElements adds all elements to empty sets and maps.
func (c *Content) addElements(tx *knftables.Transaction) {
	wanted := map[string][]string{}
	for key, e := range c.elems.wanted {
		set, present := c.sets.value(key.Set)
		switch {
		case !present:
		case set.Map:
			wanted[key.Set] = append(wanted[key.Set], key.Key+" : "+e.first.value)
		default:
			wanted[key.Set] = append(wanted[key.Set], key.Key)
		}
	}
	for name, elements := range wanted {
		for some := range slices.Chunk(elements, batch) {
			// knftables has no type for several elements, but writes this one as given.
			tx.Add(&knftables.Element{Set: name, Key: []string{strings.Join(some, ", ")}})
		}
	}
}

// replaceSets removes the sets, or maps, that are not wanted, and empties the others. No rule names them any
// more.
func (c *Content) replaceSets(tx *knftables.Transaction, names []string, maps bool) {
	for _, name := range names {
		wanted, ok := c.sets.value(name)
		switch {
		case !ok || wanted.Map != maps:
			tx.Delete(setObject(name, Set{Map: maps}))
		case !wanted.dynamic():
			tx.Flush(setObject(name, wanted))
		}
	}
}

func (c *Content) written() {
	c.chains.written()
	c.sets.written()
	c.elems.written()
}

func chainObject(name string, c chain) *knftables.Chain {
	if c.hook == (Hook{}) {
		return &knftables.Chain{Name: name}
	}
	return &knftables.Chain{Name: name, Type: &c.hook.Type, Hook: &c.hook.Hook, Priority: &c.hook.Priority}
}

func addRules(tx *knftables.Transaction, name string, c chain) {
	for _, rule := range c.each() {
		tx.Add(&knftables.Rule{Chain: name, Rule: rule})
	}
}

func setObject(name string, s Set) knftables.Object {
	var flags []knftables.SetFlag
	if s.Interval {
		flags = append(flags, knftables.IntervalFlag)
	}
	var timeout *time.Duration
	var size *uint64
	if s.dynamic() {
		flags = append(flags, knftables.DynamicFlag, knftables.TimeoutFlag)
		timeout, size = &s.Timeout, ptr.To(uint64(maxDynamic))
	}
	if s.Map {
		return &knftables.Map{Name: name, Type: s.Type, TypeOf: s.TypeOf, Flags: flags, Timeout: timeout, Size: size}
	}
	return &knftables.Set{Name: name, Type: s.Type, TypeOf: s.TypeOf, Flags: flags, Timeout: timeout, Size: size}
}

// maxDynamic limits the elements that rules add to a set.
const maxDynamic = 65536

func elementObject(s Set, e Element, value string) *knftables.Element {
	if s.Map {
		return &knftables.Element{Map: e.Set, Key: []string{e.Key}, Value: []string{value}}
	}
	return &knftables.Element{Set: e.Set, Key: []string{e.Key}}
}

func compareElements(a, b Element) int {
	return cmp.Or(strings.Compare(a.Set, b.Set), strings.Compare(a.Key, b.Key))
}
