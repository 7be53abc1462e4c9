// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
)

// Damage is one damaged part of a store.
type Damage struct {
	File string `json:"file"`
	// Page is a page of the database, and Offset an offset in the log. They are 0 if unknown.
	Page   int64 `json:"page,omitempty"`
	Offset int64 `json:"offset,omitempty"`
	// Key and Revision name a version of a key, if only one is damaged.
	Key      string `json:"key,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Problem  string `json:"problem"`
	// Droppable is true if the object at Key can be dropped, so that the store can be used.
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

// Report is the result of a check.
type Report struct {
	// Damage must be repaired before the store can be used.
	Damage []Damage `json:"damage"`
	// Notes are about problems that etcd recovers from.
	Notes []string `json:"notes,omitempty"`
	// Clean is true if the checksums show that the store is unchanged since its last clean stop.
	Clean bool `json:"cleanStop"`
	// Revisions is the number of versions of keys, Objects that of decoded objects, and Encrypted
	// that of objects that were not decoded because they are encrypted.
	Revisions int `json:"revisions"`
	Objects   int `json:"objects"`
	Encrypted int `json:"encrypted"`
	// Newest is the latest revision in the database, Entry the last entry of the log.
	Newest int64  `json:"newestRevision"`
	Entry  uint64 `json:"lastLogEntry"`
}

// damageLimit is how many damaged parts are reported: one lost page may have thousands of keys.
const damageLimit = 1000

func (r *Report) add(d Damage) {
	if len(r.Damage) < damageLimit {
		r.Damage = append(r.Damage, d)
	}
}

// Droppable reports whether there is damage, and all of it is in objects that can be dropped.
func (r *Report) Droppable() bool {
	for _, d := range r.Damage {
		if !d.Droppable {
			return false
		}
	}
	return len(r.Damage) > 0
}

// Error is the error for a damaged store.
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
		fmt.Fprintf(&b, "; restore %s from a backup, or drop the damaged objects with \"kindred check-store --drop-damaged\"", e.Dir)
	} else {
		fmt.Fprintf(&b, "; restore %s from a backup", e.Dir)
	}
	return b.String()
}
