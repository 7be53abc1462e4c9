// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events of a rollback.
const (
	rollbackNotFound  = "DeploymentRollbackRevisionNotFound"
	rollbackUnchanged = "DeploymentRollbackTemplateUnchanged"
	rollbackDone      = "DeploymentRollback"
)

// rollBack serves the annotation for spec.rollbackTo of extensions/v1beta1: it restores the
// template of an old revision, and always removes the annotation. kubectl rollout undo
// restores templates as a client.
func (r *reconciliation) rollBack(ctx context.Context) error {
	wanted, err := strconv.ParseInt(r.d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	restored := r.d.DeepCopy()
	delete(restored.Annotations, appsv1.DeprecatedRollbackTo)
	var reason, message string
	eventType := corev1.EventTypeWarning
	switch rs := r.revisionNumbered(wanted); {
	case err != nil:
		// The annotation is not a number.
	case rs == nil && wanted == 0:
		reason, message = rollbackNotFound, "Unable to find last revision."
	case rs == nil:
		reason, message = rollbackNotFound, "Unable to find the revision to rollback to."
	case sameTemplate(&rs.Spec.Template, &r.d.Spec.Template):
		reason, message = rollbackUnchanged, fmt.Sprintf("The rollback revision contains the same template as current deployment %q", r.d.Name)
	default:
		restore(restored, rs)
		eventType, reason = corev1.EventTypeNormal, rollbackDone
		message = fmt.Sprintf("Rolled back deployment %q to revision %d", r.d.Name, revision(rs))
	}
	if err := r.client.Update(ctx, restored); err != nil {
		return err
	}
	if reason != "" {
		r.events.Event(r.d, eventType, reason, message)
	}
	// The rest of the Reconcile uses the written object.
	restored.Status = r.d.Status
	r.d = restored
	r.newest, r.old = splitNewest(r.d, all(r.newest, r.old))
	return nil
}

// revisionNumbered returns the ReplicaSet with this revision, or for 0 the one before the
// newest.
func (r *reconciliation) revisionNumbered(wanted int64) *appsv1.ReplicaSet {
	sets := slices.Clone(all(r.newest, r.old))
	slices.SortFunc(sets, byRevision)
	if wanted == 0 {
		if len(sets) < 2 {
			return nil
		}
		wanted = revision(sets[len(sets)-2])
	}
	i := slices.IndexFunc(sets, func(rs *appsv1.ReplicaSet) bool { return wanted != 0 && revision(rs) == wanted })
	if i < 0 {
		return nil
	}
	return sets[i]
}

// restore copies the template and the annotations of rs to d: the change-cause belongs to
// the template.
func restore(d *appsv1.Deployment, rs *appsv1.ReplicaSet) {
	d.Spec.Template = *withoutHash(rs.Spec.Template.DeepCopy())
	maps.DeleteFunc(d.Annotations, func(key, _ string) bool { return !slices.Contains(ownAnnotations, key) })
	for key, value := range rs.Annotations {
		if !slices.Contains(ownAnnotations, key) {
			d.Annotations[key] = value
		}
	}
}
