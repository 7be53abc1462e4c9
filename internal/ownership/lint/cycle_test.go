// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

func cycleMessages(objects ...*Object) []string {
	var messages []string
	for _, f := range Check(NewSnapshot(objects, served), ownership.RuleCycle) {
		messages = append(messages, f.Object.Name+": "+f.Message)
	}
	return messages
}

// TestCycleMessages checks that a set of objects that own each other is reported once, with a
// shortest cycle and the number of the other objects in the set.
func TestCycleMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		objects []*Object
		want    []string
	}{
		"three": {
			[]*Object{object("Machine one/b", refer("Machine one/a")), object("Machine one/a", refer("Machine one/c")), object("Machine one/c", refer("Machine one/b"))},
			[]string{"a: ownership cycle: Machine a is owned by Machine c is owned by Machine b is owned by Machine a"},
		},
		"two cycles with a common object": {
			[]*Object{object("Machine one/a", refer("Machine one/b")), object("Machine one/b", refer("Machine one/c"), refer("Machine one/a")), object("Machine one/c", refer("Machine one/b"))},
			[]string{"a: ownership cycle: Machine a is owned by Machine b is owned by Machine a; 1 more in further cycles with these"},
		},
		"two cycles, one of which owns the other": {
			[]*Object{
				object("Machine one/a", refer("Machine one/b")), object("Machine one/b", refer("Machine one/a"), refer("Machine one/c")),
				object("Machine one/c", refer("Machine one/d")), object("Machine one/d", refer("Machine one/c")),
			},
			[]string{"a: ownership cycle: Machine a is owned by Machine b is owned by Machine a", "c: ownership cycle: Machine c is owned by Machine d is owned by Machine c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, cycleMessages(tt.objects...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLongChains checks that the work for a chain is linear in its length. It measures allocations
// rather than time, because they do not depend on the load of the machine.
func TestLongChains(t *testing.T) {
	allocated := func(length int, last ...graph.Owner) uint64 {
		objects := []*Object{object("Machine one/0", last...)}
		for i := 1; i < length; i++ {
			objects = append(objects, object(fmt.Sprintf("Machine one/%d", i), refer(fmt.Sprintf("Machine one/%d", i-1))))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		Check(NewSnapshot(objects, served))
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	allocated(100) // Exclude one-time allocations.
	for name, last := range map[string]func(length int) []graph.Owner{
		"chain": func(int) []graph.Owner { return nil },
		"cycle": func(length int) []graph.Owner { return []graph.Owner{refer(fmt.Sprintf("Machine one/%d", length-1))} },
	} {
		short, long := allocated(1000, last(1000)...), allocated(4000, last(4000)...)
		if long > 6*short {
			t.Errorf("%s: %d bytes for 1000 objects, and %d for 4000", name, short, long)
		}
	}
}
