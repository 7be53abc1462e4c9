// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package userns

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Unit is the smallest number of IDs that a pod has: images use IDs of 16 bits.
const Unit = 1 << 16

// idSpace is the number of IDs that the kernel has.
const idSpace = 1 << 32

// Range is a range of user IDs and of the group IDs with the same numbers.
type Range struct{ First, Length int64 }

func (r Range) end() int64 { return r.First + r.Length }

func (r Range) overlaps(other Range) bool { return r.First < other.end() && other.First < r.end() }

// defaultRange returns all IDs but those that pods without a user namespace use.
func defaultRange(idsPerPod int64) Range {
	return Range{First: idsPerPod, Length: (idSpace - idsPerPod) / idsPerPod * idsPerPod}
}

// check returns why the IDs of the user kubelet cannot be divided among pods, or nil.
func (r Range) check(idsPerPod, maxPods int64) error {
	switch {
	case r.First%idsPerPod != 0:
		return fmt.Errorf("kubelet user assigned ID %d is not a multiple of %d", r.First, idsPerPod)
	case r.First < idsPerPod:
		return fmt.Errorf("kubelet user assigned ID %d must be greater or equal to %d", r.First, idsPerPod)
	case r.Length%idsPerPod != 0:
		return fmt.Errorf("kubelet user assigned IDs length %d is not a multiple of %d", r.Length, idsPerPod)
	case r.end() > idSpace:
		return fmt.Errorf("kubelet user assigned IDs end at %d, and must be less than %d", r.end(), int64(idSpace))
	case r.Length/idsPerPod < maxPods:
		return fmt.Errorf("kubelet user assigned IDs are not enough to support %d pods", maxPods)
	}
	return nil
}

// free returns the lowest range of this size in r that overlaps none of the used ones. Used ranges may have another size,
// from an agent with another configuration.
func (r Range) free(size int64, used []Range) (Range, bool) {
	used = slices.SortedFunc(slices.Values(used), func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	candidate := Range{First: r.First, Length: size}
	for _, u := range used {
		if candidate.overlaps(u) {
			slots := (u.end() - r.First + size - 1) / size
			candidate.First = r.First + slots*size
		}
	}
	return candidate, candidate.end() <= r.end()
}

// parseSubIDs parses the output of getsubids, which has one line for each range: "0: kubelet 65536 7208960".
func parseSubIDs(output string) (Range, error) {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) != 1 {
		return Range{}, fmt.Errorf("the user kubelet has %d ranges of subordinate IDs, and must have one", len(lines))
	}
	fields := strings.Fields(lines[0])
	if len(fields) != 4 {
		return Range{}, fmt.Errorf("getsubids printed %q, want a range of subordinate IDs", lines[0])
	}
	first, errFirst := strconv.ParseUint(fields[2], 10, 32)
	length, errLength := strconv.ParseUint(fields[3], 10, 32)
	if err := cmp.Or(errFirst, errLength); err != nil {
		return Range{}, fmt.Errorf("getsubids printed %q: %w", lines[0], err)
	}
	return Range{First: int64(first), Length: int64(length)}, nil
}
