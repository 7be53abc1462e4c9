// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
)

// Damage is one thing that is wrong with a store.
type Damage struct {
	File string `json:"file"`
	// Page is a page of the database, Offset a place in the log: -1 where neither is known.
	Page   int64 `json:"page,omitempty"`
	Offset int64 `json:"offset,omitempty"`
	// Key and Revision name a version of a key, if the damage is of one alone.
	Key      string `json:"key,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Problem  string `json:"problem"`
	// Droppable reports whether the store can go on without the object at Key.
	Droppable bool `json:"droppable"`
}

func (d Damage) String() string {
	var b strings.Builder
	b.WriteString(d.File)
	if d.Page > 0 {
		fmt.Fprintf(&b, ", page %d", d.Page)
	}
	if d.Offset > 0 {
		fmt.Fprintf(&b, ", offset %d", d.Offset)
	}
	if d.Key != "" {
		fmt.Fprintf(&b, ", %s", d.Key)
	}
	if d.Revision > 0 {
		fmt.Fprintf(&b, " (revision %d)", d.Revision)
	}
	return b.String() + ": " + d.Problem
}

// Report is what a check found.
type Report struct {
	// Damage must be mended before the store can be used.
	Damage []Damage `json:"damage"`
	// Notes are about what etcd recovers from by itself.
	Notes []string `json:"notes,omitempty"`
	// Clean reports whether the store is as its last clean stop left it, by its checksums.
	Clean bool `json:"cleanStop"`
	// Revisions is how many versions of keys there are, Objects how many objects were decoded,
	// and Encrypted how many were not, for want of a key.
	Revisions int `json:"revisions"`
	Objects   int `json:"objects"`
	Encrypted int `json:"encrypted"`
	// Newest is the revision of the latest write in the database, Entry the last of the log.
	Newest int64  `json:"newestRevision"`
	Entry  uint64 `json:"lastLogEntry"`
}

// damageLimit is how many findings are kept: a page that is gone has thousands.
const damageLimit = 1000

func (r *Report) add(d Damage) {
	if len(r.Damage) < damageLimit {
		r.Damage = append(r.Damage, d)
	}
}

// Droppable reports whether all that is damaged are objects that can be dropped.
func (r *Report) Droppable() bool {
	for _, d := range r.Damage {
		if !d.Droppable {
			return false
		}
	}
	return len(r.Damage) > 0
}

// Error is the refusal to start on a damaged store.
type Error struct {
	// Dir is the directory of the store.
	Dir    string
	Report *Report
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the store is damaged: %s", e.Report.Damage[0])
	if more := len(e.Report.Damage) - 1; more > 0 {
		fmt.Fprintf(&b, " (and %d more, listed by \"kindred check-store\")", more)
	}
	if e.Report.Droppable() {
		fmt.Fprintf(&b, "; restore %s from a backup, or go on without what is damaged: \"kindred check-store --drop-damaged\"", e.Dir)
	} else {
		fmt.Fprintf(&b, "; restore %s from a backup", e.Dir)
	}
	return b.String()
}
