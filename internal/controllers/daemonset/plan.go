// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// view is the input of a plan: a DaemonSet, and its pods by node.
type view struct {
	ds     *appsv1.DaemonSet
	stamp  stamp
	now    time.Time
	places []place
}

// place is a node, or the name of a deleted node, with the DaemonSet's pods on it.
type place struct {
	node   string
	exists bool
	fitness
	// pods are on the node or created for it, ordered by boundThenOldest. They include pods that
	// are being deleted, which occupy the node's ports until they have stopped.
	pods []*corev1.Pod
}

// newView groups the pods by node.
func newView(ds *appsv1.DaemonSet, s stamp, nodes []corev1.Node, claimed []*corev1.Pod, now time.Time) view {
	places := make(map[string]*place, len(nodes))
	fitter := newFitter(ds)
	for i := range nodes {
		places[nodes[i].Name] = &place{node: nodes[i].Name, exists: true, fitness: fitter.fit(&nodes[i])}
	}
	for _, pod := range claimed {
		name := nodeOf(pod)
		if name == "" || pod.DeletionTimestamp != nil && pods.IsTerminal(pod) {
			continue
		}
		if places[name] == nil {
			places[name] = &place{node: name}
		}
		places[name].pods = append(places[name].pods, pod)
	}
	v := view{ds: ds, stamp: s, now: now}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		slices.SortFunc(places[name].pods, boundThenOldest)
		v.places = append(v.places, *places[name])
	}
	return v
}

// alive returns the pods that are not being deleted, including those that have ended.
func (p *place) alive() []*corev1.Pod {
	return pods.Filter(p.pods, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
}

// plan is what a Reconcile does.
type plan struct {
	// create names the nodes that get a pod.
	create []string
	// remove holds surplus and outdated pods, and those on nodes that do not fit.
	remove []*corev1.Pod
	// failed and succeeded pods have ended and are replaced. Failed ones wait for a
	// backoff, since the next pod may fail as well.
	failed, succeeded []*corev1.Pod
}

// plan decides what to do: first upkeep, place by place, and then the rollout, for which a
// place that upkeep changes is busy.
func (v view) plan() plan {
	var p plan
	busy := make([]bool, len(v.places))
	for i := range v.places {
		busy[i] = v.upkeep(&p, &v.places[i])
	}
	if v.ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		v.roll(&p, busy)
	}
	return p
}

// upkeep plans one pod for a place that fits, or two during a surge, and none for others. It
// reports whether it changes the place.
func (v view) upkeep(p *plan, at *place) (busy bool) {
	before := len(p.create) + len(p.remove) + len(p.succeeded)
	alive := at.alive()
	switch {
	case !at.exists:
		// Bound pods are left to the pod garbage collector; unbound ones would
		// wait for the node forever.
		p.remove = append(p.remove, pods.Filter(alive, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" })...)
	case at.start && len(at.pods) == 0:
		p.create = append(p.create, at.node)
	case at.stay:
		v.removeSurplus(p, at, v.clearEnded(p, alive))
	default:
		p.remove = append(p.remove, alive...)
	}
	return len(p.create)+len(p.remove)+len(p.succeeded) > before
}

// clearEnded plans the deletion of ended pods, and returns the others.
func (v view) clearEnded(p *plan, alive []*corev1.Pod) (running []*corev1.Pod) {
	for _, pod := range alive {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			p.succeeded = append(p.succeeded, pod)
		case pod.Status.Phase != corev1.PodFailed:
			running = append(running, pod)
		case v.ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && !v.stamp.isOn(pod):
			// Its replacement has another template, so it needs no backoff.
			p.remove = append(p.remove, pod)
		default:
			p.failed = append(p.failed, pod)
		}
	}
	return running
}

// removeSurplus plans the deletion of surplus running pods in a place.
func (v view) removeSurplus(p *plan, at *place, running []*corev1.Pod) {
	if !v.surges() {
		p.remove = append(p.remove, running[min(1, len(running)):]...)
		return
	}
	if len(running) == 0 {
		// A surge does not wait for the stopping pod.
		if at.start {
			p.create = append(p.create, at.node)
		}
		return
	}
	if len(running) == 1 {
		return
	}
	// Two may stay: a ready old pod, and the new one until it is available.
	updated, outdated := v.splitByRevision(running)
	p.remove = append(p.remove, updated[min(1, len(updated)):]...)
	p.remove = append(p.remove, outdated[min(1, len(outdated)):]...)
	if len(updated) > 0 && len(outdated) > 0 && (!pods.IsReady(outdated[0]) || v.available(updated[0])) {
		p.remove = append(p.remove, outdated[0])
	}
}

// splitByRevision separates pods of the current revision from outdated ones.
func (v view) splitByRevision(all []*corev1.Pod) (updated, outdated []*corev1.Pod) {
	for _, pod := range all {
		if v.stamp.isOn(pod) {
			updated = append(updated, pod)
		} else {
			outdated = append(outdated, pod)
		}
	}
	return updated, outdated
}

func (v view) available(pod *corev1.Pod) bool {
	return pods.IsAvailable(pod, v.ds.Spec.MinReadySeconds, v.now)
}

// desired returns how many places should have a pod.
func (v view) desired() (n int) {
	for i := range v.places {
		if v.places[i].start {
			n++
		}
	}
	return n
}

// bound limits a plan to what one Reconcile may do, so that a large DaemonSet reports its progress
// and leaves room for others.
func (p plan) bound(n int) plan {
	p.create = p.create[:min(n, len(p.create))]
	p.remove = p.remove[:min(n, len(p.remove))]
	return p
}
