// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// plan is what a Reconcile does, in this order.
type plan struct {
	// create holds the replicas that get a pod, and before it their missing claims.
	create []replica
	// supply holds replicas with a pending pod that lacks claims.
	supply []replica
	// repair holds replicas whose pod differs in its identity or storage, or whose claims
	// differ in their owners.
	repair []replica
	// release holds surplus replicas whose claims differ in their owners.
	release []replica
	// remove holds ended, surplus and outdated pods.
	remove []*corev1.Pod
}

// plan decides what to do: upkeep of the replicas, then scaling down, then the rolling update.
// An ordered StatefulSet takes no further step while a replica is not available.
func (v view) plan() plan {
	var p plan
	if v.upkeep(&p) && v.scaleDown(&p) {
		p.remove = append(p.remove, v.outdated()...)
	}
	return p
}

// upkeep plans one pod for each ordinal, and reports whether the next step may follow.
func (v view) upkeep(p *plan) bool {
	for _, r := range v.replicas {
		v.keep(p, r)
		if v.ordered() && !v.available(r) {
			return false
		}
	}
	return true
}

func (v view) keep(p *plan, r replica) {
	switch {
	case r.pod == nil:
		if !v.losesClaim(r) {
			p.create = append(p.create, r)
		}
		return
	case pods.IsTerminal(r.pod):
		// Succeeded pods too: an eviction or a reboot of the node leaves the exit code of
		// the container to decide on the phase.
		if r.pod.DeletionTimestamp == nil {
			p.remove = append(p.remove, r.pod)
		}
		return
	}
	if r.pod.Status.Phase == corev1.PodPending && slices.Contains(r.claims, nil) {
		p.supply = append(p.supply, r)
	}
	if v.ordered() && !v.available(r) {
		return
	}
	if !isIdentified(r.pod) || !isMounted(v.set, r.pod, r.ordinal) || v.ownersDiffer(r, false) {
		p.repair = append(p.repair, r)
	}
}

// losesClaim reports whether a claim of a missing pod is about to be deleted.
func (v view) losesClaim(r replica) bool {
	return slices.ContainsFunc(r.claims, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim != nil && v.retention.blocks(claim, podName(v.set, r.ordinal))
	})
}

// ownersDiffer reports whether a claim of the pod has other owners than it should.
func (v view) ownersDiffer(r replica, surplus bool) bool {
	return slices.ContainsFunc(r.claims, func(claim *corev1.PersistentVolumeClaim) bool {
		if claim == nil {
			return false
		}
		_, differ := v.retention.owners(claim, r.pod, surplus)
		return differ
	})
}

// scaleDown plans the deletion of surplus pods, and reports whether the next step may follow.
func (v view) scaleDown(p *plan) bool {
	for _, r := range v.surplus {
		if v.ownersDiffer(r, true) {
			p.release = append(p.release, r)
		}
	}
	if v.ordered() {
		return v.scaleDownOne(p)
	}
	for _, r := range v.surplus {
		if r.pod.DeletionTimestamp == nil {
			p.remove = append(p.remove, r.pod)
		}
	}
	return true
}

// scaleDownOne plans the deletion of the surplus pod with the highest ordinal, unless it is
// not available and another one with a lower ordinal is not available either.
func (v view) scaleDownOne(p *plan) bool {
	if len(v.surplus) == 0 {
		return true
	}
	last := v.surplus[0]
	unavailable := slices.ContainsFunc(v.surplus[1:], func(r replica) bool { return !v.available(r) })
	if last.pod.DeletionTimestamp == nil && (v.available(last) || !unavailable) {
		p.remove = append(p.remove, last.pod)
	}
	return false
}
