// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"time"

	"sigs.k8s.io/knftables"
)

// Fragment is a part of a table. Names in it are names of the whole table: several fragments may have the same
// chain or set, with the same definition.
type Fragment struct {
	Chains map[string]Chain
	// Sets are also the maps.
	Sets map[string]Set
	// Elements are those of sets and maps, by the name of the set and the key.
	Elements map[Element]string
}

// Chain is a chain with its rules, in nft's syntax.
type Chain struct {
	// Hook is nil in a chain that others jump to.
	Hook  *Hook
	Rules []string
}

// Hook is the place at which the kernel calls a base chain. The policy of base chains is to accept.
type Hook struct {
	Type     knftables.BaseChainType
	Hook     knftables.BaseChainHook
	Priority knftables.BaseChainPriority
}

// Set defines a set or a map. A process never changes the definition of a name.
type Set struct {
	// Type or TypeOf define the key, in nft's syntax, and in a map the value as well, after a colon:
	// "ipv4_addr . inet_service : verdict".
	Type, TypeOf string
	Map          bool
	// Interval is set if the keys are ranges or prefixes.
	Interval bool
	// Timeout is the lifetime of an element that a rule added. It is 0 if rules add none.
	Timeout time.Duration
}

// dynamic reports whether rules add the elements.
func (s Set) dynamic() bool { return s.Timeout > 0 }

// Element identifies an element: the key is in nft's syntax, such as "10.96.0.1 . tcp . 443".
type Element struct{ Set, Key string }

// Add adds the content of another fragment.
func (f *Fragment) Add(other Fragment) {
	for name, c := range other.Chains {
		f.AddChain(name, c)
	}
	for name, s := range other.Sets {
		f.AddSet(name, s)
	}
	for e, value := range other.Elements {
		f.AddElement(e.Set, e.Key, value)
	}
}

// AddChain adds a chain, or replaces it.
func (f *Fragment) AddChain(name string, c Chain) {
	if f.Chains == nil {
		f.Chains = map[string]Chain{}
	}
	f.Chains[name] = c
}

// AddSet adds a set or map, or replaces it.
func (f *Fragment) AddSet(name string, s Set) {
	if f.Sets == nil {
		f.Sets = map[string]Set{}
	}
	f.Sets[name] = s
}

// AddElement adds an element. Its value is empty in a set.
func (f *Fragment) AddElement(set, key, value string) {
	if f.Elements == nil {
		f.Elements = map[Element]string{}
	}
	f.Elements[Element{set, key}] = value
}
