// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// limits holds the limits of a rolling update, in nodes: unavailable is how many may lose their
// available pod, surge is how many may have a second pod.
type limits struct {
	unavailable, surge int
}

// limitsFor resolves maxUnavailable and maxSurge, and rounds percentages up. If both are zero,
// one node may be unavailable, or the rollout could not progress.
func (v view) limitsFor(desired int) limits {
	strategy := v.ds.Spec.UpdateStrategy.RollingUpdate
	if strategy == nil {
		strategy = &appsv1.RollingUpdateDaemonSet{}
	}
	l := limits{unavailable: resolve(strategy.MaxUnavailable, desired), surge: resolve(strategy.MaxSurge, desired)}
	if desired > 0 && l == (limits{}) {
		l.unavailable = 1
	}
	return l
}

// resolve returns a validated value as a number of nodes.
func resolve(value *intstr.IntOrString, of int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, intstr.FromInt32(0)), of, true)
	if err != nil {
		return 0
	}
	return n
}

// surges reports whether a node may have two pods at a time.
func (v view) surges() bool {
	return v.ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && v.limitsFor(1).surge > 0
}

// roll adds the next step of a rolling update. busy marks the places that upkeep changes.
func (v view) roll(p *plan, busy []bool) {
	desired := v.desired()
	l := v.limitsFor(desired)
	if l.surge > 0 {
		v.rollBySurge(p, busy, l.surge, desired)
		return
	}
	v.rollByReplacement(p, busy, l.unavailable)
}

// pair is a place in a rolling update: at most one updated and one outdated pod.
type pair struct {
	updated, outdated *corev1.Pod
}

// pairAt returns the pods of a place, and false if upkeep has to come first.
func (v view) pairAt(at *place, busy bool) (pair, bool) {
	updated, outdated := v.splitByRevision(at.alive())
	if busy || len(updated) > 1 || len(outdated) > 1 {
		return pair{}, false
	}
	return pair{first(updated), first(outdated)}, true
}

func first(of []*corev1.Pod) *corev1.Pod {
	if len(of) == 0 {
		return nil
	}
	return of[0]
}

// rollByReplacement deletes outdated pods, which upkeep then replaces: unavailable ones
// immediately, available ones up to the limit.
func (v view) rollByReplacement(p *plan, busy []bool, limit int) {
	unavailable := 0
	var candidates []*corev1.Pod
	for i := range v.places {
		at := &v.places[i]
		if !at.exists {
			continue
		}
		pods, settled := v.pairAt(at, busy[i])
		switch {
		case !settled:
			unavailable++
		case pods.updated == nil && pods.outdated == nil:
			// A place whose pod is stopping has no updated pod yet.
			if at.start {
				unavailable++
			}
		case pods.updated != nil:
			if !v.available(pods.updated) {
				unavailable++
			}
		case !v.available(pods.outdated):
			p.remove = append(p.remove, pods.outdated)
			unavailable++
		default:
			candidates = append(candidates, pods.outdated)
		}
	}
	p.remove = append(p.remove, candidates[:min(len(candidates), max(0, limit-unavailable))]...)
}

// rollBySurge creates updated pods on nodes with an outdated one: immediately if the old one
// is unavailable, otherwise up to the limit. Upkeep deletes the old pod when the new one is
// available.
//
// An outdated pod on a node that does not fit a new one is deleted only if enough pods are
// available elsewhere, since a surge must not reduce availability.
func (v view) rollBySurge(p *plan, busy []bool, limit, desired int) {
	surging, available := 0, 0
	var candidates []string
	var stranded []*corev1.Pod
	for i := range v.places {
		at := &v.places[i]
		if !at.exists {
			continue
		}
		pods, settled := v.pairAt(at, busy[i])
		if !settled {
			surging++
			continue
		}
		if v.serves(pods) {
			available++
		}
		switch {
		case pods.outdated == nil:
		case pods.updated != nil:
			surging++
		case !at.start && v.available(pods.outdated):
			stranded = append(stranded, pods.outdated)
		case !at.start:
			p.remove = append(p.remove, pods.outdated)
		case v.available(pods.outdated):
			candidates = append(candidates, at.node)
		default:
			p.create = append(p.create, at.node)
		}
	}
	p.remove = append(p.remove, stranded[:min(len(stranded), max(0, available-desired))]...)
	p.create = append(p.create, candidates[:min(len(candidates), max(0, limit-surging))]...)
}

// serves reports whether the place has an available pod: the outdated one as long as it
// exists.
func (v view) serves(p pair) bool {
	if p.outdated != nil {
		return v.available(p.outdated)
	}
	return p.updated != nil && v.available(p.updated)
}
