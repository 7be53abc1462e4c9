// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// reconciliation is one Reconcile of one Deployment: d is a copy whose status and annotations
// it may modify; newest, which may be nil, and old are the ReplicaSets as it read or wrote them.
type reconciliation struct {
	*reconciler
	limits
	d      *appsv1.Deployment
	newest *appsv1.ReplicaSet
	old    []*appsv1.ReplicaSet
	// rolling is set if it took a step of a rollout, whose progress is then checked.
	// A paused or resized Deployment does not have to progress.
	rolling bool
}

// step takes the next step of the rollout, except in these cases: a Deployment that is being
// deleted is left alone, one with a rollback annotation is rolled back, and one that is
// paused, or that has rolling updates and was resized, is only scaled.
func (r *reconciliation) step(ctx context.Context) error {
	if r.d.DeletionTimestamp != nil {
		return nil
	}
	recordPause(r.d, r.clock.Now())
	if !r.d.Spec.Paused && r.d.Annotations[appsv1.DeprecatedRollbackTo] != "" {
		return r.rollBack(ctx)
	}
	if err := r.syncNewest(ctx); err != nil {
		return err
	}
	if r.d.Spec.Paused {
		if err := r.scale(ctx); err != nil {
			return err
		}
		return r.cleanUp(ctx)
	}
	if r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return r.recreate(ctx)
	}
	if r.resized() {
		return r.scale(ctx)
	}
	return r.roll(ctx)
}

// status returns the status after a step that returned err.
func (r *reconciliation) status(err error) appsv1.DeploymentStatus {
	now := r.clock.Now()
	status := statusOf(r.d, r.newest, r.old, now)
	if r.rolling && err == nil {
		addConditions(r.d, &status, r.newest, r.old, now)
	}
	return status
}

// syncNewest copies the Deployment's annotations and minReadySeconds to the newest
// ReplicaSet, and its revision to the Deployment. If the Deployment has a progress deadline
// and no Progressing condition, it sets one.
func (r *reconciliation) syncNewest(ctx context.Context) error {
	if r.newest == nil {
		return nil
	}
	rs := r.newest.DeepCopy()
	changed := annotateNewest(rs, r.d, r.old)
	if changed || rs.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
		if err := r.update(ctx, rs); err != nil {
			return err
		}
		r.newest = rs
	}
	r.copyRevision()
	if hasDeadline(r.d) && getCondition(&r.d.Status, appsv1.DeploymentProgressing) == nil {
		r.setProgress(corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", rs.Name))
	}
	return nil
}

// copyRevision copies the newest ReplicaSet's revision to the Deployment.
func (r *reconciliation) copyRevision() {
	if number := r.newest.Annotations[revisionAnnotation]; number != "" {
		if r.d.Annotations == nil {
			r.d.Annotations = map[string]string{}
		}
		r.d.Annotations[revisionAnnotation] = number
	}
}

func (r *reconciliation) setProgress(status corev1.ConditionStatus, reason, message string) {
	setCondition(&r.d.Status, condition(appsv1.DeploymentProgressing, status, reason, message, r.clock.Now()))
}

// resized reports whether the Deployment was scaled since its ReplicaSets were last
// resized.
func (r *reconciliation) resized() bool {
	return slices.ContainsFunc(all(r.newest, r.old), func(rs *appsv1.ReplicaSet) bool {
		last, known := sizeAnnotation(rs, desiredAnnotation)
		return size(rs) > 0 && known && last != r.want
	})
}

// scale resizes the ReplicaSets to the Deployment's size without advancing a rollout. A
// single active ReplicaSet gets all replicas; several keep their shares.
func (r *reconciliation) scale(ctx context.Context) error {
	sets := r.byAge()
	active := slices.DeleteFunc(slices.Clone(sets), func(rs *appsv1.ReplicaSet) bool { return size(rs) == 0 })
	switch {
	case len(sets) == 0:
		return nil
	case len(active) == 1:
		return r.resize(ctx, active[0], r.want, true)
	case len(active) == 0 && r.newest != nil:
		return r.resize(ctx, r.newest, r.want, true)
	case len(active) == 0:
		return r.resize(ctx, sets[len(sets)-1], r.want, true)
	case r.saturated():
		return r.emptyOld(ctx)
	case r.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType:
		return nil
	}
	for i, n := range r.spread(sized(sets), r.d.Status.Replicas) {
		if size(sets[i]) == 0 {
			continue
		}
		if err := r.resize(ctx, sets[i], n, true); err != nil {
			return err
		}
	}
	return nil
}

// saturated reports whether the newest ReplicaSet has all replicas of the Deployment, all of
// them available, and the Deployment's size in its annotation.
func (r *reconciliation) saturated() bool {
	if r.newest == nil {
		return false
	}
	last, known := sizeAnnotation(r.newest, desiredAnnotation)
	return known && last == r.want && size(r.newest) == r.want && r.newest.Status.AvailableReplicas == r.want
}

// roll takes one step of a rolling update.
func (r *reconciliation) roll(ctx context.Context) error {
	r.rolling = true
	if r.newest == nil {
		n := r.grow(0, total(sized(r.old)))
		if err := r.create(ctx, n); err != nil || r.newest == nil {
			return err
		}
	}
	old := slices.Clone(r.old)
	newestSize, oldSizes := r.nextSizes(sizedOne(r.newest), sized(old))
	if err := r.resize(ctx, r.newest, newestSize, false); err != nil {
		return err
	}
	for i, n := range oldSizes {
		if err := r.resize(ctx, old[i], n, false); err != nil {
			return err
		}
	}
	return r.cleanUpIfComplete(ctx)
}

// recreate stops all old pods, waits until they have ended, and then starts the newest
// ReplicaSet.
func (r *reconciliation) recreate(ctx context.Context) error {
	r.rolling = true
	if err := r.emptyOld(ctx); err != nil {
		return err
	}
	running, err := r.oldPodsRun(ctx)
	if err != nil || running {
		return err
	}
	if r.newest == nil {
		if err := r.create(ctx, r.want); err != nil || r.newest == nil {
			return err
		}
	}
	if err := r.resize(ctx, r.newest, r.want, r.resized()); err != nil {
		return err
	}
	return r.cleanUpIfComplete(ctx)
}

// oldPodsRun reports whether a pod of an old ReplicaSet may still run. The status of the
// ReplicaSets is not enough: it does not count terminating pods.
func (r *reconciliation) oldPodsRun(ctx context.Context) (bool, error) {
	for _, rs := range r.old {
		if rs.Status.Replicas > 0 || size(rs) > 0 {
			return true, nil
		}
		found, err := pods.List(ctx, r.client, owned.By(rs.Namespace, string(rs.UID))...)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(found, func(pod *corev1.Pod) bool { return !pods.IsTerminal(pod) }) {
			return true, nil
		}
	}
	return false, nil
}

func (r *reconciliation) emptyOld(ctx context.Context) error {
	for _, rs := range slices.Clone(r.old) {
		if err := r.resize(ctx, rs, 0, false); err != nil {
			return err
		}
	}
	return nil
}

// create creates the newest ReplicaSet with n replicas. If its name is taken by another
// object, newest stays nil and the next Reconcile tries another name.
func (r *reconciliation) create(ctx context.Context, n int32) error {
	if ok, err := owned.Confirm(ctx, r.live, r.d); !ok {
		return err
	}
	rs := newReplicaSet(r.d)
	rs.Spec.Replicas = ptr.To(n)
	annotateNewest(rs, r.d, r.old)
	annotateSize(rs, r.limits)
	name := rs.Name
	err := r.client.Create(ctx, rs)
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.resolveCollision(ctx, name)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case err != nil:
		message := fmt.Sprintf("Failed to create new replica set %q: %v", name, err)
		if hasDeadline(r.d) {
			r.setProgress(corev1.ConditionFalse, reasonCreateError, message)
		}
		r.events.Event(r.d, corev1.EventTypeWarning, reasonCreateError, message)
		return err
	}
	r.ledger.Wrote(r.d, rs)
	r.newest = rs
	r.copyRevision()
	if n > 0 {
		r.events.Eventf(r.d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", name, n)
	}
	if hasDeadline(r.d) {
		r.setProgress(corev1.ConditionTrue, reasonCreated, fmt.Sprintf("Created new replica set %q", name))
	}
	return nil
}

// resolveCollision handles an existing ReplicaSet with the newest one's name: it is the newest
// one, which is not cached yet, or another one with the same hash, which a higher
// collision count avoids.
func (r *reconciliation) resolveCollision(ctx context.Context, name string) error {
	rs := &appsv1.ReplicaSet{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: r.d.Namespace, Name: name}, rs); err != nil {
		return err
	}
	if metav1.IsControlledBy(rs, r.d) && sameTemplate(&rs.Spec.Template, &r.d.Spec.Template) {
		r.ledger.Wrote(r.d, rs)
		r.newest = rs
		r.copyRevision()
		return nil
	}
	r.d.Status.CollisionCount = ptr.To(ptr.Deref(r.d.Status.CollisionCount, 0) + 1)
	klog.FromContext(ctx).Info("Hash collision of the new ReplicaSet, trying another name", "replicaSet", klog.KObj(rs), "collisionCount", *r.d.Status.CollisionCount)
	return nil
}

// resize writes a ReplicaSet's size, with the Deployment's size and ceiling as annotations.
// If only the annotations differ, it writes them only if always is set.
func (r *reconciliation) resize(ctx context.Context, rs *appsv1.ReplicaSet, n int32, always bool) error {
	before := size(rs)
	resized := rs.DeepCopy()
	resized.Spec.Replicas = ptr.To(n)
	annotated := annotateSize(resized, r.limits)
	if before == n && !(always && annotated) {
		return nil
	}
	if err := r.update(ctx, resized); err != nil {
		return err
	}
	if rs == r.newest {
		r.newest = resized
	} else if i := slices.Index(r.old, rs); i >= 0 {
		r.old[i] = resized
	}
	if before != n {
		direction := "down"
		if n > before {
			direction = "up"
		}
		r.events.Eventf(r.d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, rs.Name, before, n)
	}
	return nil
}

// update writes rs, and sets it to the object that the API returns.
func (r *reconciliation) update(ctx context.Context, rs *appsv1.ReplicaSet) error {
	if err := r.client.Update(ctx, rs); err != nil {
		return err
	}
	r.ledger.Wrote(r.d, rs)
	return nil
}

func (r *reconciliation) cleanUpIfComplete(ctx context.Context) error {
	if !complete(r.d, &r.d.Status) {
		return nil
	}
	return r.cleanUp(ctx)
}

// cleanUp deletes the oldest revisions beyond revisionHistoryLimit, except for those with
// pods or with an outdated status.
func (r *reconciliation) cleanUp(ctx context.Context) error {
	limit := r.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	history := slices.DeleteFunc(slices.Clone(r.old), func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	slices.SortFunc(history, byRevision)
	for _, rs := range history[:max(0, len(history)-int(*limit))] {
		if rs.Status.Replicas != 0 || size(rs) != 0 || rs.Generation > rs.Status.ObservedGeneration {
			continue
		}
		if err := r.client.Delete(ctx, rs.DeepCopy(), client.Preconditions{UID: &rs.UID}); client.IgnoreNotFound(err) != nil {
			return err
		}
		r.ledger.Deleted(r.d, rs)
	}
	return nil
}

// byAge returns all ReplicaSets from the oldest to the youngest.
func (r *reconciliation) byAge() []*appsv1.ReplicaSet {
	sets := slices.Clone(all(r.newest, r.old))
	slices.SortFunc(sets, byAge)
	return sets
}

// sized returns ReplicaSets as the plan sees them.
func sized(sets []*appsv1.ReplicaSet) []set {
	out := make([]set, len(sets))
	for i, rs := range sets {
		out[i] = sizedOne(rs)
	}
	return out
}

func sizedOne(rs *appsv1.ReplicaSet) set {
	ceiling, _ := sizeAnnotation(rs, maxAnnotation)
	return set{size: size(rs), available: rs.Status.AvailableReplicas, ceiling: ceiling}
}
