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

// limits holds the limits of a rollout, in pods: want is spec.replicas, surge is how many
// more pods may exist, and unavailable is how many of want may be unavailable.
type limits struct {
	want, surge, unavailable int32
}

// set is a ReplicaSet as the plan sees it.
type set struct {
	// size is its spec.replicas, available its status.availableReplicas.
	size, available int32
	// ceiling is want+surge of the Deployment when the set was last resized, or 0 if
	// unknown.
	ceiling int32
}

// steady returns how many of the set's pods are available and will stay: pods beyond its
// size are about to be deleted, even if its status still counts them.
func (s set) steady() int32 { return min(s.size, s.available) }

// limitsOf resolves maxSurge and maxUnavailable. It rounds percentages of maxSurge up and
// those of maxUnavailable down. If both are zero, one pod may be unavailable, or the
// rollout could not progress.
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

// resolve returns a validated value as a number of pods.
func resolve(value *intstr.IntOrString, of int32, roundUp bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, intstr.FromInt32(0)), int(of), roundUp)
	if err != nil {
		return 0
	}
	return int32(n)
}

func (l limits) ceiling() int32      { return l.want + l.surge }
func (l limits) minAvailable() int32 { return l.want - l.unavailable }

// nextSizes returns the sizes after the next step of a rolling update: the newest set is as
// large as the surge allows, and the old ones, ordered from oldest to youngest, are as small
// as availability allows.
func (l limits) nextSizes(newest set, old []set) (newestSize int32, oldSizes []int32) {
	newest.size = l.grow(newest.size, newest.size+total(old))
	old = slices.Clone(old)
	// All pods above the minimum are spare, except for the unavailable ones of the
	// newest set: a broken template stops the rollout.
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

// grow returns how large the newest set may be if all sets have total pods.
func (l limits) grow(size, total int32) int32 {
	if size > l.want {
		return l.want
	}
	return size + max(0, min(l.want-size, l.ceiling()-total))
}

// shrink removes up to count pods from the sets, the oldest set first, and from each set at
// most as many as it may lose.
func shrink(sets []set, count int32, mayLose func(set) int32) {
	for i := range sets {
		cut := max(0, min(count, mayLose(sets[i])))
		sets[i].size -= cut
		count -= cut
	}
}

// spread returns the sizes after the Deployment was resized during a rollout. Each set,
// ordered from oldest to youngest, keeps its share of the total, so that scaling does not
// advance or delay the rollout. Empty sets stay empty; the remainder of the rounding goes
// to the largest set.
//
// oldTotal is the Deployment's former number of pods, for sets with an unknown ceiling.
func (l limits) spread(sets []set, oldTotal int32) []int32 {
	out := sizes(sets)
	allowed := l.ceiling()
	if l.want == 0 {
		allowed = 0
	}
	left := allowed - total(sets)
	up := left > 0
	order := bySize(sets, up)
	for _, i := range order {
		share := l.share(sets[i], oldTotal)
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

// share returns by how much a set must change to keep its share of the total.
func (l limits) share(s set, oldTotal int32) int32 {
	if l.want == 0 {
		return -s.size
	}
	before := cmp.Or(s.ceiling, oldTotal)
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(s.size)*float64(l.ceiling())/float64(before))) - s.size
}

// bySize returns the indexes of the sets that are not empty, the largest first. Of equal
// sets, the younger grows first and the older shrinks first.
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
