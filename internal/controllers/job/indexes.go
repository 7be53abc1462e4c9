// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// interval is a range of completion indexes, including both ends.
type interval struct{ first, last int }

// indexes is a set of completion indexes. A Job may have a billion indexes, so the set consists of
// intervals, in increasing order, that neither touch nor overlap.
type indexes []interval

// parseIndexes parses the indexes below completions in a status or a rule. It ignores invalid
// parts, which validation refuses to store.
func parseIndexes(text string, completions int) indexes {
	var out indexes
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 == nil && err2 == nil && first <= last && first < completions {
			out = append(out, interval{first, min(last, completions-1)})
		}
	}
	return union(out)
}

// union returns the union of sets.
func union(sets ...indexes) indexes {
	all := slices.Concat(sets...)
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	var out indexes
	for _, next := range all {
		if n := len(out); n > 0 && next.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, next.last)
			continue
		}
		out = append(out, next)
	}
	return out
}

// newIndexes returns the set of the given indexes.
func newIndexes(singles ...int) indexes {
	out := make(indexes, len(singles))
	for i, index := range singles {
		out[i] = interval{index, index}
	}
	return union(out)
}

func (x indexes) count() int {
	n := 0
	for _, part := range x {
		n += part.last - part.first + 1
	}
	return n
}

func (x indexes) contains(index int) bool {
	_, found := slices.BinarySearchFunc(x, index, func(part interval, index int) int {
		switch {
		case part.last < index:
			return -1
		case part.first > index:
			return 1
		default:
			return 0
		}
	})
	return found
}

// countShared returns how many indexes are in both sets.
func (x indexes) countShared(y indexes) int {
	n := 0
	for len(x) > 0 && len(y) > 0 {
		n += max(0, min(x[0].last, y[0].last)-max(x[0].first, y[0].first)+1)
		if x[0].last < y[0].last {
			x = x[1:]
		} else {
			y = y[1:]
		}
	}
	return n
}

// firstMissing returns the lowest n indexes below completions that are not in the set.
func (x indexes) firstMissing(n, completions int) []int {
	var out []int
	next := 0
	for _, part := range append(slices.Clone(x), interval{completions, completions}) {
		for ; next < min(part.first, completions) && len(out) < n; next++ {
			out = append(out, next)
		}
		next = part.last + 1
	}
	return out
}

// String writes the set as status.completedIndexes has it: "1,3-5,7,8".
func (x indexes) String() string {
	var parts []string
	for _, part := range x {
		switch part.last - part.first {
		case 0:
			parts = append(parts, strconv.Itoa(part.first))
		case 1:
			parts = append(parts, strconv.Itoa(part.first), strconv.Itoa(part.last))
		default:
			parts = append(parts, strconv.Itoa(part.first)+"-"+strconv.Itoa(part.last))
		}
	}
	return strings.Join(parts, ",")
}

// indexOf returns the completion index of a pod, and whether it is valid and below completions.
func indexOf(pod *corev1.Pod, completions int) (int, bool) {
	index, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return index, err == nil && index >= 0 && index < completions
}

// indexesOf returns the indexes of the pods.
func indexesOf(pods []*corev1.Pod, completions int) indexes {
	var singles []int
	for _, pod := range pods {
		if index, ok := indexOf(pod, completions); ok {
			singles = append(singles, index)
		}
	}
	return newIndexes(singles...)
}

// annotatedCount returns the counter in an annotation. It is 0 if a user has made it invalid.
func annotatedCount(pod *corev1.Pod, annotation string) int {
	n, err := strconv.Atoi(pod.Annotations[annotation])
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return n
}

// indexFailures returns how often the index of this pod had failed before: the failures that
// count towards backoffLimitPerIndex, and all failures.
func indexFailures(pod *corev1.Pod) (counted, all int) {
	counted = annotatedCount(pod, batchv1.JobIndexFailureCountAnnotation)
	return counted, counted + annotatedCount(pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
}
