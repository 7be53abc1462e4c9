// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// view is the input of a plan: a StatefulSet, its revisions, and its pods and claims.
type view struct {
	set             *appsv1.StatefulSet
	current, update revision
	retention       retention
	now             time.Time
	// replicas has a place for each ordinal; a missing pod is nil.
	replicas []replica
	// surplus pods have ordinals outside of the range, highest first.
	surplus []replica
}

// replica is an ordinal with its pod, if it exists.
type replica struct {
	ordinal int
	pod     *corev1.Pod
	// claims holds a claim for each claim template, nil if it does not exist.
	claims []*corev1.PersistentVolumeClaim
}

// newView places the pods by their ordinals, and leaves out those that have none.
func newView(set *appsv1.StatefulSet, h history, claimed []*corev1.Pod, now time.Time) view {
	v := view{set: set, current: h.current, update: h.update, retention: retentionOf(set), now: now}
	first := firstOrdinal(set)
	v.replicas = make([]replica, replicasOf(set))
	for i := range v.replicas {
		v.replicas[i].ordinal = first + i
	}
	for _, pod := range claimed {
		ordinal, ok := ordinalOf(set, pod)
		if !ok {
			continue
		}
		if i := ordinal - first; i >= 0 && i < len(v.replicas) {
			v.replicas[i].pod = pod
		} else {
			v.surplus = append(v.surplus, replica{ordinal: ordinal, pod: pod})
		}
	}
	slices.SortFunc(v.surplus, func(a, b replica) int { return b.ordinal - a.ordinal })
	return v
}

// ordered reports whether pods are created and deleted one after the other.
func (v view) ordered() bool { return v.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement }

// available reports whether a replica has a pod that is available, has not ended and is not being
// deleted.
func (v view) available(r replica) bool {
	return r.pod != nil && pods.IsActive(r.pod) && pods.IsAvailable(r.pod, v.set.Spec.MinReadySeconds, v.now)
}

// isUpdated reports whether the pod has the update revision.
func (v view) isUpdated(pod *corev1.Pod) bool { return revisionOf(pod) == v.update.name }

// partition returns the index of the first replica that a rolling update changes.
func (v view) partition() int {
	if rolling := v.set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Partition != nil {
		return int(*rolling.Partition)
	}
	return 0
}

// revisionFor returns the revision at which a missing pod is created: below the partition,
// the current one.
func (v view) revisionFor(r replica) revision {
	if v.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && r.ordinal-firstOrdinal(v.set) < v.partition() {
		return v.current
	}
	return v.update
}
