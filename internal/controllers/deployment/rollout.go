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

// pass is one Reconcile of one Deployment: d is a copy whose status and annotations it may
// modify; newest, which may be nil, and old are its ReplicaSets as this pass read or wrote
// them.
type pass struct {
	*reconciler
	limits
	d      *appsv1.Deployment
	newest *appsv1.ReplicaSet
	old    []*appsv1.ReplicaSet
	// rolling is set if this pass worked on a rollout, so that its progress is checked.
	// A paused or resized Deployment does not have to progress.
	rolling bool
}

// step does nothing for a Deployment that is being deleted, scales one that is paused or
// was resized, and otherwise takes the next step of the rollout.
func (p *pass) step(ctx context.Context) error {
	if p.d.DeletionTimestamp != nil {
		return nil
	}
	notePause(p.d, p.clock.Now())
	if !p.d.Spec.Paused && p.d.Annotations[appsv1.DeprecatedRollbackTo] != "" {
		return p.rollBack(ctx)
	}
	if err := p.syncNewest(ctx); err != nil {
		return err
	}
	if p.d.Spec.Paused {
		if err := p.scale(ctx); err != nil {
			return err
		}
		return p.cleanUp(ctx)
	}
	if p.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return p.recreate(ctx)
	}
	if p.resized() {
		return p.scale(ctx)
	}
	return p.roll(ctx)
}

// status returns the status after a pass that returned err.
func (p *pass) status(err error) appsv1.DeploymentStatus {
	now := p.clock.Now()
	status := statusOf(p.d, p.newest, p.old, now)
	if p.rolling && err == nil {
		addConditions(p.d, &status, p.newest, p.old, now)
	}
	return status
}

// syncNewest copies the Deployment's annotations and minReadySeconds to the newest
// ReplicaSet.
func (p *pass) syncNewest(ctx context.Context) error {
	if p.newest == nil {
		return nil
	}
	rs := p.newest.DeepCopy()
	changed := annotateNewest(rs, p.d, p.old)
	if changed || rs.Spec.MinReadySeconds != p.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds = p.d.Spec.MinReadySeconds
		if err := p.update(ctx, rs); err != nil {
			return err
		}
		p.newest = rs
	}
	p.takeRevision()
	if hasDeadline(p.d) && getCondition(&p.d.Status, appsv1.DeploymentProgressing) == nil {
		p.note(corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", rs.Name))
	}
	return nil
}

// takeRevision copies the newest ReplicaSet's revision to the Deployment.
func (p *pass) takeRevision() {
	if number := p.newest.Annotations[revisionAnnotation]; number != "" {
		if p.d.Annotations == nil {
			p.d.Annotations = map[string]string{}
		}
		p.d.Annotations[revisionAnnotation] = number
	}
}

func (p *pass) note(status corev1.ConditionStatus, reason, message string) {
	setCondition(&p.d.Status, condition(appsv1.DeploymentProgressing, status, reason, message, p.clock.Now()))
}

// resized reports whether the Deployment was scaled since its ReplicaSets were last
// resized.
func (p *pass) resized() bool {
	return slices.ContainsFunc(all(p.newest, p.old), func(rs *appsv1.ReplicaSet) bool {
		former, known := sizeAnnotation(rs, desiredAnnotation)
		return size(rs) > 0 && known && former != p.want
	})
}

// scale resizes the ReplicaSets to the Deployment's size without advancing a rollout. A
// single active ReplicaSet gets all replicas; several keep their shares.
func (p *pass) scale(ctx context.Context) error {
	sets := p.byAge()
	active := slices.DeleteFunc(slices.Clone(sets), func(rs *appsv1.ReplicaSet) bool { return size(rs) == 0 })
	switch {
	case len(sets) == 0:
		return nil
	case len(active) == 1:
		return p.resize(ctx, active[0], p.want, true)
	case len(active) == 0 && p.newest != nil:
		return p.resize(ctx, p.newest, p.want, true)
	case len(active) == 0:
		return p.resize(ctx, sets[len(sets)-1], p.want, true)
	case p.saturated():
		return p.emptyOld(ctx)
	case p.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType:
		return nil
	}
	for i, n := range p.spread(sized(sets), p.d.Status.Replicas) {
		if size(sets[i]) == 0 {
			continue
		}
		if err := p.resize(ctx, sets[i], n, true); err != nil {
			return err
		}
	}
	return nil
}

// saturated reports whether the newest ReplicaSet has all replicas, available, with the
// Deployment's size in its annotation.
func (p *pass) saturated() bool {
	if p.newest == nil {
		return false
	}
	known, ok := sizeAnnotation(p.newest, desiredAnnotation)
	return ok && known == p.want && size(p.newest) == p.want && p.newest.Status.AvailableReplicas == p.want
}

// roll takes one step of a rolling update.
func (p *pass) roll(ctx context.Context) error {
	p.rolling = true
	if p.newest == nil {
		n := p.grow(0, total(sized(p.old)))
		if err := p.create(ctx, n); err != nil || p.newest == nil {
			return err
		}
	}
	old := slices.Clone(p.old)
	newestSize, oldSizes := p.nextSizes(sizedOne(p.newest), sized(old))
	if err := p.resize(ctx, p.newest, newestSize, false); err != nil {
		return err
	}
	for i, n := range oldSizes {
		if err := p.resize(ctx, old[i], n, false); err != nil {
			return err
		}
	}
	return p.cleanUpIfComplete(ctx)
}

// recreate stops all old pods, waits until they have ended, and then starts the newest
// ReplicaSet.
func (p *pass) recreate(ctx context.Context) error {
	p.rolling = true
	if err := p.emptyOld(ctx); err != nil {
		return err
	}
	running, err := p.oldPodsRun(ctx)
	if err != nil || running {
		return err
	}
	if p.newest == nil {
		if err := p.create(ctx, p.want); err != nil || p.newest == nil {
			return err
		}
	}
	if err := p.resize(ctx, p.newest, p.want, p.resized()); err != nil {
		return err
	}
	return p.cleanUpIfComplete(ctx)
}

// oldPodsRun reports whether a pod of an old ReplicaSet may still run. The status of the
// ReplicaSets is not enough: it does not count terminating pods.
func (p *pass) oldPodsRun(ctx context.Context) (bool, error) {
	for _, rs := range p.old {
		if rs.Status.Replicas > 0 || size(rs) > 0 {
			return true, nil
		}
		found, err := pods.List(ctx, p.client, owned.By(rs.Namespace, string(rs.UID))...)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(found, func(pod *corev1.Pod) bool { return !pods.IsTerminal(pod) }) {
			return true, nil
		}
	}
	return false, nil
}

func (p *pass) emptyOld(ctx context.Context) error {
	for _, rs := range slices.Clone(p.old) {
		if err := p.resize(ctx, rs, 0, false); err != nil {
			return err
		}
	}
	return nil
}

// create creates the newest ReplicaSet with n replicas. If its name is taken by another
// object, newest stays nil and the next pass tries another name.
func (p *pass) create(ctx context.Context, n int32) error {
	rs := newReplicaSet(p.d)
	rs.Spec.Replicas = ptr.To(n)
	annotateNewest(rs, p.d, p.old)
	annotateSize(rs, p.limits)
	name := rs.Name
	err := p.client.Create(ctx, rs)
	switch {
	case apierrors.IsAlreadyExists(err):
		return p.resolveCollision(ctx, name)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case err != nil:
		message := fmt.Sprintf("Failed to create new replica set %q: %v", name, err)
		if hasDeadline(p.d) {
			p.note(corev1.ConditionFalse, reasonCreateError, message)
		}
		p.events.Event(p.d, corev1.EventTypeWarning, reasonCreateError, message)
		return err
	}
	p.ledger.Wrote(p.d, rs)
	p.newest = rs
	p.takeRevision()
	if n > 0 {
		p.events.Eventf(p.d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", name, n)
	}
	if hasDeadline(p.d) {
		p.note(corev1.ConditionTrue, reasonCreated, fmt.Sprintf("Created new replica set %q", name))
	}
	return nil
}

// resolveCollision handles an existing ReplicaSet with the newest one's name: it is the newest
// one, which is not cached yet, or another one with the same hash, which a higher
// collision count avoids.
func (p *pass) resolveCollision(ctx context.Context, name string) error {
	rs := &appsv1.ReplicaSet{}
	if err := p.live.Get(ctx, client.ObjectKey{Namespace: p.d.Namespace, Name: name}, rs); err != nil {
		return err
	}
	if metav1.IsControlledBy(rs, p.d) && sameTemplate(&rs.Spec.Template, &p.d.Spec.Template) {
		p.ledger.Wrote(p.d, rs)
		p.newest = rs
		p.takeRevision()
		return nil
	}
	p.d.Status.CollisionCount = ptr.To(ptr.Deref(p.d.Status.CollisionCount, 0) + 1)
	klog.FromContext(ctx).Info("Hash collision of the new ReplicaSet, trying another name", "replicaSet", klog.KObj(rs), "collisionCount", *p.d.Status.CollisionCount)
	return nil
}

// resize writes a ReplicaSet's size, with the Deployment's size and ceiling as annotations.
// If only the annotations differ, it writes them only if always is set.
func (p *pass) resize(ctx context.Context, rs *appsv1.ReplicaSet, n int32, always bool) error {
	before := size(rs)
	resized := rs.DeepCopy()
	resized.Spec.Replicas = ptr.To(n)
	annotated := annotateSize(resized, p.limits)
	if before == n && !(always && annotated) {
		return nil
	}
	if err := p.update(ctx, resized); err != nil {
		return err
	}
	if rs == p.newest {
		p.newest = resized
	} else if i := slices.Index(p.old, rs); i >= 0 {
		p.old[i] = resized
	}
	if before != n {
		direction := "down"
		if n > before {
			direction = "up"
		}
		p.events.Eventf(p.d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, rs.Name, before, n)
	}
	return nil
}

// update writes rs and updates it with the API's answer.
func (p *pass) update(ctx context.Context, rs *appsv1.ReplicaSet) error {
	if err := p.client.Update(ctx, rs); err != nil {
		return err
	}
	p.ledger.Wrote(p.d, rs)
	return nil
}

func (p *pass) cleanUpIfComplete(ctx context.Context) error {
	if !complete(p.d, &p.d.Status) {
		return nil
	}
	return p.cleanUp(ctx)
}

// cleanUp deletes the oldest revisions beyond revisionHistoryLimit, except for those with
// pods or with an outdated status.
func (p *pass) cleanUp(ctx context.Context) error {
	limit := p.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	history := slices.DeleteFunc(slices.Clone(p.old), func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	slices.SortFunc(history, byRevision)
	for _, rs := range history[:max(0, len(history)-int(*limit))] {
		if rs.Status.Replicas != 0 || size(rs) != 0 || rs.Generation > rs.Status.ObservedGeneration {
			continue
		}
		if err := p.client.Delete(ctx, rs.DeepCopy(), client.Preconditions{UID: &rs.UID}); client.IgnoreNotFound(err) != nil {
			return err
		}
		p.ledger.Deleted(p.d, rs)
	}
	return nil
}

// byAge returns all ReplicaSets from the oldest to the youngest.
func (p *pass) byAge() []*appsv1.ReplicaSet {
	sets := slices.Clone(all(p.newest, p.old))
	slices.SortFunc(sets, byAge)
	return sets
}

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
