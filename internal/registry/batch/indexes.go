// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// interval is a range of indexes of an indexed Job, inclusive. Lists of indexes are written as
// intervals in increasing order: "1,3-5,7".
type interval struct{ first, last int32 }

// parseInterval reads one interval below completions.
func parseInterval(text string, completions int32) (interval, error) {
	parts := strings.Split(text, "-")
	if len(parts) > 2 {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	var ends [2]int32
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		switch {
		case err != nil:
			return interval{}, fmt.Errorf("cannot convert string to integer for index: %q", part)
		case n >= int(completions):
			return interval{}, fmt.Errorf("too large index: %q", part)
		}
		ends[i] = int32(n)
	}
	if len(parts) == 1 {
		return interval{ends[0], ends[0]}, nil
	}
	if ends[0] >= ends[1] {
		return interval{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", ends[0], ends[1])
	}
	return interval{ends[0], ends[1]}, nil
}

// countIndexes checks a list and returns the number of its indexes.
func countIndexes(list string, completions int32) (int32, error) {
	if list == "" {
		return 0, nil
	}
	var count int32
	last := int32(-1)
	for text := range strings.SplitSeq(list, ",") {
		next, err := parseInterval(text, completions)
		if err != nil {
			return 0, err
		}
		if next.first <= last {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, next.first)
		}
		count += next.last - next.first + 1
		last = next.last
	}
	return count, nil
}

// validIntervals returns the intervals without those that countIndexes refuses.
func validIntervals(list string, completions int32) []interval {
	var out []interval
	for text := range strings.SplitSeq(list, ",") {
		if next, err := parseInterval(text, completions); err == nil {
			out = append(out, next)
		}
	}
	return out
}

// sharedIndex returns the first index that is in both lists.
func sharedIndex(a, b []interval) (int32, bool) {
	for len(a) > 0 && len(b) > 0 {
		if a[0].first <= b[0].last && b[0].first <= a[0].last {
			return max(a[0].first, b[0].first), true
		}
		if a[0].first <= b[0].first {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return 0, false
}
