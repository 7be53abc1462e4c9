// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// class is a set of differences that probably have one cause: the same aspect, field and words,
// with any values.
type class struct {
	Aspect   aspect   `json:"aspect"`
	Field    string   `json:"field,omitempty"`
	Upstream string   `json:"upstream"`
	Kindred  string   `json:"kindred"`
	Count    int      `json:"count"`
	Kinds    []string `json:"kinds"`
	// Example is one of the requests; Upstream and Kindred are the servers' answers to it.
	Example *outcome `json:"example"`
}

var (
	quoted  = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	numbers = regexp.MustCompile(`-?\d+(\.\d+)?`)
	leading = regexp.MustCompile(`^[1-5]\d\d `)
	nested  = regexp.MustCompile(`\{[^{}]*\}|\[[^\[\]]*\]`)
	indexes = regexp.MustCompile(`\[[^\]]*\]`)
)

// words returns a text without its values: strings, numbers, objects, lists. The code before it
// stays.
func words(text string) string {
	code := leading.FindString(text)
	text = numbers.ReplaceAllString(quoted.ReplaceAllString(text[len(code):], `"…"`), "N")
	for {
		shorter := nested.ReplaceAllString(text, "…")
		if shorter == text {
			return code + clip(text, 300)
		}
		text = shorter
	}
}

// classify groups the differences of all trials and returns the largest class first.
func classify(trials []*trial) []*class {
	byKey := map[string]*class{}
	var all []*class
	for _, t := range trials {
		for i := range t.outcomes {
			o := &t.outcomes[i]
			for _, d := range o.Differences {
				c := &class{Aspect: d.Aspect, Field: place(d.Field), Upstream: d.Upstream, Kindred: d.Kindred, Example: o}
				key := c.key()
				if known := byKey[key]; known != nil {
					c = known
				} else {
					byKey[key] = c
					all = append(all, c)
				}
				c.Count++
				if name := t.resource.String(); !slices.Contains(c.Kinds, name) {
					c.Kinds = append(c.Kinds, name)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *class) int {
		return cmp.Or(cmp.Compare(rank(a.Aspect), rank(b.Aspect)), cmp.Compare(b.Count, a.Count))
	})
	return all
}

// managers is the path of managed fields, by nameManagers.
const managers = "metadata.managedFields."

// place returns a field without its indexes. All fields of a manager are one place.
func place(field string) string {
	if name, found := strings.CutPrefix(field, managers); found {
		name, _, _ = strings.Cut(name, ".fieldsV1")
		return managers + name
	}
	return indexes.ReplaceAllString(field, "[]")
}

// key is equal for differences of one class.
func (c *class) key() string {
	upstream, kindred := words(c.Upstream), words(c.Kindred)
	switch {
	case strings.HasPrefix(c.Field, managers):
		upstream, kindred = "", ""
	case c.Aspect == aspectMessages && upstream == kindred:
		// The same words about the same field, with the value in another notation.
		upstream, kindred, c.Field = "", "", "(how a value is written)"
	}
	return strings.Join([]string{string(c.Aspect), c.Field, upstream, kindred}, "\x00")
}

// rank sorts aspects that agreement requires first.
func rank(a aspect) int {
	switch {
	case slices.Contains(required, a):
		return 0
	case a == aspectTable || a == aspectDiscovery:
		return 1
	}
	return 2
}
