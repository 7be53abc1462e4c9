// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// limits are the bounds of a rollout, in pods: want is spec.replicas, surge is
// how many more may exist, unavailable how many of want may be missing.
type limits struct {
	want, surge, unavailable int32
}

// set is what a plan needs to know of a ReplicaSet.
type set struct {
	// size is its spec.replicas, available its status.availableReplicas.
	size, available int32
	// ceiling is want+surge of the Deployment when the set was last sized, 0 if
	// that is not known.
	ceiling int32
}

// steady is how many of the set's pods are available and will stay: pods beyond
// its size are about to be deleted, even while its status still counts them.
func (s set) steady() int32 { return min(s.size, s.available) }

// limitsOf resolves maxSurge and maxUnavailable. Percentages of maxSurge are
// rounded up, of maxUnavailable down; if both come out as zero, one pod may be
// unavailable, or the rollout could never move.
func limitsOf(d *appsv1.Deployment) limits {
	l := limits{want: desired(d)}
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return l
	}
	strategy := ptr.Deref(d.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
	l.surge = resolve(strategy.MaxSurge, l.want, true)
	l.unavailable = resolve(strategy.MaxUnavailable, l.want, false)
	if l.surge == 0 && l.unavailable == 0 {
		l.unavailable = 1
	}
	l.unavailable = min(l.unavailable, l.want)
	return l
}

// resolve returns the value, which validation has checked, as a number of pods.
func resolve(value *intstr.IntOrString, of int32, roundUp bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, intstr.FromInt32(0)), int(of), roundUp)
	if err != nil {
		return 0
	}
	return int32(n)
}

func (l limits) ceiling() int32      { return l.want + l.surge }
func (l limits) minAvailable() int32 { return l.want - l.unavailable }

// nextSizes returns the sizes after the next step of a rolling update: the newest
// set as large as the surge allows, and the old ones, given from the oldest to
// the youngest, as small as availability allows.
func (l limits) nextSizes(newest set, old []set) (newestSize int32, oldSizes []int32) {
	newest.size = l.grow(newest.size, newest.size+total(old))
	old = slices.Clone(old)
	// What may go: everything above the minimum, less the pods of the newest
	// set which do not count yet, so that a broken template stops the rollout.
	spare := newest.size + total(old) - l.minAvailable() - (newest.size - newest.available)
	if spare > 0 {
		shrink(old, spare, func(s set) int32 { return s.size - s.steady() })
		available := newest.steady()
		for _, s := range old {
			available += s.steady()
		}
		shrink(old, available-l.minAvailable(), func(s set) int32 { return s.size })
	}
	return newest.size, sizes(old)
}

// grow returns how large the newest set may be when all sets together have
// total pods.
func (l limits) grow(size, total int32) int32 {
	if size > l.want {
		return l.want
	}
	return size + max(0, min(l.want-size, l.ceiling()-total))
}

// shrink takes up to count pods from the sets, the oldest first, and from each
// at most as many as it may lose.
func shrink(sets []set, count int32, mayLose func(set) int32) {
	for i := range sets {
		cut := max(0, min(count, mayLose(sets[i])))
		sets[i].size -= cut
		count -= cut
	}
}

// spread returns the sizes after the Deployment was resized in the middle of a
// rollout: each set, given from the oldest to the youngest, keeps its share of
// the whole, so that scaling neither hastens nor holds up the rollout. Empty
// sets stay empty; what rounding leaves goes to the largest.
//
// formerly is the Deployment's number of pods, for sets whose former ceiling is
// not known.
func (l limits) spread(sets []set, formerly int32) []int32 {
	out := sizes(sets)
	allowed := l.ceiling()
	if l.want == 0 {
		allowed = 0
	}
	left := allowed - total(sets)
	up := left > 0
	order := bySize(sets, up)
	for _, i := range order {
		share := l.share(sets[i], formerly)
		if up {
			share = max(0, min(share, left))
		} else {
			share = min(0, max(share, left, -out[i]))
		}
		out[i] += share
		left -= share
	}
	for _, i := range order {
		rest := left
		if !up {
			rest = max(left, -out[i])
		}
		out[i] += rest
		left -= rest
	}
	return out
}

// share returns by how much a set should change to keep its part of the whole.
func (l limits) share(s set, formerly int32) int32 {
	if l.want == 0 {
		return -s.size
	}
	before := cmp.Or(s.ceiling, formerly)
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(s.size)*float64(l.ceiling())/float64(before))) - s.size
}

// bySize returns the indexes of the sets that are not empty, the largest first.
// Of equal sets the younger grows first, and the older shrinks first.
func bySize(sets []set, up bool) []int {
	var order []int
	for i, s := range sets {
		if s.size > 0 {
			order = append(order, i)
		}
	}
	if up {
		slices.Reverse(order)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sets[b].size, sets[a].size) })
	return order
}

func total(sets []set) (sum int32) {
	for _, s := range sets {
		sum += s.size
	}
	return sum
}

func sizes(sets []set) []int32 {
	out := make([]int32, len(sets))
	for i, s := range sets {
		out[i] = s.size
	}
	return out
}
