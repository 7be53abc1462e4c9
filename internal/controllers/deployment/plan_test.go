// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"math/rand"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		want               int32
		surge, unavailable string
		wantSurge, wantUn  int32
	}{
		{10, "25%", "25%", 3, 2},
		{4, "25%", "25%", 1, 1},
		{1, "25%", "25%", 1, 0},
		{0, "25%", "25%", 0, 0},
		{10, "3", "2", 3, 2},
		{2, "0%", "1%", 0, 1}, // both round to zero
		{2, "1%", "25%", 1, 0},
		{3, "0", "5", 0, 3}, // never more than all
	} {
		d := &appsv1.Deployment{}
		d.Spec.Replicas = &tc.want
		surge, unavailable := intstr.Parse(tc.surge), intstr.Parse(tc.unavailable)
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable},
		}
		if got := limitsOf(d); got.surge != tc.wantSurge || got.unavailable != tc.wantUn {
			t.Errorf("%d replicas, surge %s, unavailable %s: got %+v", tc.want, tc.surge, tc.unavailable, got)
		}
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		if got := limitsOf(d); got != (limits{want: tc.want}) {
			t.Errorf("Recreate: got %+v", got)
		}
	}
}

func TestNextSizes(t *testing.T) {
	ten := limits{want: 10, surge: 3, unavailable: 2}
	for _, tc := range []struct {
		name   string
		limits limits
		newest set
		old    []set
		want   []int32 // newest, then old
	}{
		{"complete: no change", ten, set{size: 10, available: 10}, []set{{}}, []int32{10, 0}},
		{"first step", ten, set{}, []set{{size: 10, available: 10}}, []int32{3, 8}},
		{"new pods not available yet", ten, set{size: 5}, []set{{size: 8, available: 8}}, []int32{5, 8}},
		{"new pods available", ten, set{size: 5, available: 5}, []set{{size: 8, available: 8}}, []int32{5, 3}},
		{"the status of a ReplicaSet still counts surplus pods", ten, set{size: 5, available: 3}, []set{{size: 8, available: 10}}, []int32{5, 5}},
		{"a broken template stops the rollout", ten, set{size: 5}, []set{{size: 8, available: 7}}, []int32{5, 8}},
		{"rollback: unhealthy pods are removed first", ten, set{size: 8, available: 8}, []set{{size: 5, available: 0}}, []int32{8, 0}},
		{"rollover: the oldest set shrinks first", ten, set{}, []set{{size: 8, available: 8}, {size: 5, available: 5}}, []int32{0, 3, 5}},
		{"the newest set is too large", limits{want: 3, surge: 1}, set{size: 5, available: 5}, nil, []int32{3}},
		{"to zero", limits{}, set{size: 2, available: 2}, []set{{size: 3, available: 3}}, []int32{0, 0}},
		{"no surge", limits{want: 2, unavailable: 1}, set{}, []set{{size: 2, available: 2}}, []int32{0, 1}},
	} {
		newest, old := tc.limits.nextSizes(tc.newest, tc.old)
		if got := append([]int32{newest}, old...); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// replicas is a model of a ReplicaSet and its pods: the ReplicaSet controller creates and deletes
// pods and reports the status, both with a delay.
type replicas struct {
	size, ready, starting, reported int32
}

func (r *replicas) act() {
	for r.ready+r.starting > r.size {
		if r.starting > 0 { // pods that are not ready are deleted first
			r.starting--
		} else {
			r.ready--
		}
	}
	r.starting += max(0, r.size-r.ready-r.starting)
}

func (r *replicas) set() set { return set{size: r.size, available: r.reported} }

// TestRollingUpdateKeepsLimits runs random rollouts, with rollovers, on the model. The plan must
// never ask for more than want+surge pods, must never reduce the number of available pods below
// want-unavailable, and must complete the rollout once all pods start.
func TestRollingUpdateKeepsLimits(t *testing.T) {
	for seed := range int64(2000) {
		rng := rand.New(rand.NewSource(seed))
		l := limits{want: int32(1 + rng.Intn(12)), surge: int32(rng.Intn(4)), unavailable: int32(rng.Intn(4))}
		l.unavailable = min(l.unavailable, l.want)
		if l.surge == 0 && l.unavailable == 0 {
			l.unavailable = 1
		}
		fleet := []*replicas{{size: l.want, ready: l.want, reported: l.want}, {}} // oldest first
		plan := func() {
			newest := fleet[len(fleet)-1]
			var old []set
			for _, r := range fleet[:len(fleet)-1] {
				old = append(old, r.set())
			}
			n, sizes := l.nextSizes(newest.set(), old)
			newest.size = n
			for i, s := range sizes {
				fleet[i].size = s
			}
		}
		sum := func(of func(*replicas) int32) (total int32) {
			for _, r := range fleet {
				total += of(r)
			}
			return total
		}
		for step := range 200 {
			r := fleet[rng.Intn(len(fleet))]
			switch rng.Intn(10) {
			case 0, 1, 2:
				plan()
			case 3, 4:
				r.act()
			case 5, 6:
				r.reported = r.ready
			case 7, 8:
				if r.starting > 0 {
					r.starting--
					r.ready++
				}
			case 9:
				if rng.Intn(10) == 0 {
					fleet = append(fleet, &replicas{})
				}
			}
			if asked := sum(func(r *replicas) int32 { return r.size }); asked > l.ceiling() {
				t.Fatalf("seed %d step %d: %d pods planned, %+v", seed, step, asked, l)
			}
			if steady := sum(func(r *replicas) int32 { return min(r.ready, r.size) }); steady < l.minAvailable() {
				t.Fatalf("seed %d step %d: only %d pods are or stay available, %+v", seed, step, steady, l)
			}
		}
		for range 200 {
			plan()
			for _, r := range fleet {
				r.act()
				r.ready, r.starting = r.ready+r.starting, 0
				r.reported = r.ready
			}
		}
		newest := fleet[len(fleet)-1]
		if newest.ready != l.want || sum(func(r *replicas) int32 { return r.size }) != l.want {
			t.Fatalf("seed %d: the rollout does not complete: %d of %d, %+v", seed, newest.ready, l.want, l)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, tc := range []struct {
		name string
		l    limits
		sets []set // oldest first
		want []int32
	}{
		// The example of the documentation: 10 replicas, surge 3, unavailable 2,
		// in the middle of a rollout, scaled to 15.
		{"documented", limits{want: 15, surge: 3}, []set{{size: 8, ceiling: 13}, {size: 5, ceiling: 13}}, []int32{11, 7}},
		{"same size", limits{want: 10, surge: 3}, []set{{size: 8, ceiling: 13}, {size: 5, ceiling: 13}}, []int32{8, 5}},
		{"to zero", limits{surge: 3}, []set{{size: 8, ceiling: 13}, {size: 5, ceiling: 13}}, []int32{0, 0}},
		{"empty sets stay empty", limits{want: 20}, []set{{ceiling: 10}, {size: 5, ceiling: 10}, {size: 5, ceiling: 10}}, []int32{0, 10, 10}},
		{"equal sets, up: the younger first", limits{want: 3}, []set{{size: 1, ceiling: 2}, {size: 1, ceiling: 2}}, []int32{1, 2}},
		{"equal sets, down: the older first", limits{want: 3}, []set{{size: 2, ceiling: 4}, {size: 2, ceiling: 4}}, []int32{1, 2}},
		{"unknown ceiling", limits{want: 20}, []set{{size: 5}, {size: 5}}, []int32{10, 10}},
	} {
		if got := tc.l.spread(tc.sets, 10); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// For any sizes and annotations, even invalid ones, the sum is exactly the allowed number, no size
// becomes negative, and no set changes in the wrong direction.
func TestSpreadAddsUp(t *testing.T) {
	for seed := range int64(5000) {
		rng := rand.New(rand.NewSource(seed))
		l := limits{want: int32(rng.Intn(50)), surge: int32(rng.Intn(5))}
		sets := make([]set, 1+rng.Intn(5))
		for i := range sets {
			sets[i] = set{size: int32(rng.Intn(20)), ceiling: int32(rng.Intn(60))}
		}
		before := total(sets)
		if before == 0 {
			continue
		}
		allowed := l.ceiling()
		if l.want == 0 {
			allowed = 0
		}
		var after int32
		for i, n := range l.spread(sets, int32(rng.Intn(40))) {
			after += n
			if n < 0 || (sets[i].size == 0 && n != 0) {
				t.Fatalf("seed %d: %+v of %+v becomes %d", seed, sets[i], sets, n)
			}
			if (allowed > before && n < sets[i].size) || (allowed < before && n > sets[i].size) {
				t.Fatalf("seed %d: from %d to %d pods, but %d become %d", seed, before, allowed, sets[i].size, n)
			}
		}
		if after != allowed {
			t.Fatalf("seed %d: %d pods in %+v, %d allowed", seed, after, sets, allowed)
		}
	}
}
