// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/revisions"
)

// history holds a DaemonSet's revisions: the current one, and the others from oldest to
// newest.
type history struct {
	current *appsv1.ControllerRevision
	others  []*appsv1.ControllerRevision
}

// historyOf reads the DaemonSet's revisions and ensures that exactly one of them, the newest,
// has its template. It returns the updated pods.
func (r *reconciler) historyOf(ctx context.Context, ds *appsv1.DaemonSet, selector labels.Selector, claimed []*corev1.Pod) (history, []*corev1.Pod, error) {
	all, err := r.revisions.List(ctx, ds, selector)
	if err != nil {
		return history{}, nil, err
	}
	data, err := revisions.PatchTo(&ds.Spec.Template)
	if err != nil {
		return history{}, nil, err
	}
	same, others := revisions.Split(all, data)
	wanted := r.revisions.New(ds, ds.Spec.Template.Labels, data, ds.Status.CollisionCount)
	current, err := r.revisions.Current(ctx, ds, wanted, same, others)
	if errors.Is(err, revisions.ErrNameTaken) {
		err = errors.Join(err, r.countCollision(ctx, ds))
	}
	if err != nil {
		return history{}, nil, fmt.Errorf("failed to construct revisions of DaemonSet: %w", err)
	}
	if len(same) > 1 {
		claimed, err = r.mergeDuplicates(ctx, ds, current, same[:len(same)-1], claimed)
	}
	return history{current: current, others: others}, claimed, err
}

// countCollision gives the template another hash in the next Reconcile.
func (r *reconciler) countCollision(ctx context.Context, ds *appsv1.DaemonSet) error {
	updated := ds.DeepCopy()
	updated.Status.CollisionCount = ptr.To(ptr.Deref(ds.Status.CollisionCount, 0) + 1)
	klog.FromContext(ctx).Info("Hash collision of a ControllerRevision, trying another name", "daemonSet", klog.KObj(ds), "collisionCount", *updated.Status.CollisionCount)
	return r.client.Status().Update(ctx, updated)
}

// mergeDuplicates deletes duplicates of the current revision. It relabels their pods first: a pod
// whose revision is missing would count as outdated and be replaced, although it has the
// current template.
func (r *reconciler) mergeDuplicates(ctx context.Context, ds *appsv1.DaemonSet, current *appsv1.ControllerRevision, duplicates []*appsv1.ControllerRevision, claimed []*corev1.Pod) ([]*corev1.Pod, error) {
	hash := r.revisions.Hash(current)
	obsolete := map[string]bool{}
	for _, duplicate := range duplicates {
		obsolete[r.revisions.Hash(duplicate)] = true
	}
	delete(obsolete, hash)
	updated := make([]*corev1.Pod, len(claimed))
	for i, pod := range claimed {
		updated[i] = pod
		if !obsolete[pod.Labels[hashLabel]] {
			continue
		}
		relabelled := pod.DeepCopy()
		relabelled.Labels[hashLabel] = hash
		if err := r.client.Patch(ctx, relabelled, client.MergeFrom(pod)); err != nil {
			return nil, err
		}
		r.ledger.Wrote(ds, relabelled)
		updated[i] = relabelled
	}
	for _, duplicate := range duplicates {
		if err := r.revisions.Delete(ctx, ds, duplicate); err != nil {
			return nil, err
		}
	}
	return updated, nil
}

// trim deletes the oldest revisions without pods beyond revisionHistoryLimit.
func (r *reconciler) trim(ctx context.Context, ds *appsv1.DaemonSet, h history, claimed []*corev1.Pod) error {
	if ds.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	live := map[string]bool{}
	for _, pod := range claimed {
		live[pod.Labels[hashLabel]] = true
	}
	return r.revisions.Trim(ctx, ds, h.others, len(h.others)-int(*ds.Spec.RevisionHistoryLimit),
		func(revision *appsv1.ControllerRevision) bool { return live[r.revisions.Hash(revision)] })
}
