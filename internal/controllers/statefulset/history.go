// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/revisions"
)

// revision is a pod template and the name of its ControllerRevision, with which pods are
// labelled.
type revision struct {
	name     string
	template *corev1.PodTemplateSpec
}

// revisionOf returns the name of a pod's revision.
func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

// history holds a StatefulSet's revisions. The update revision has the template of its spec.
// The current one is that of the last complete update.
type history struct {
	current, update revision
	all             []*appsv1.ControllerRevision
}

// historyOf reads the StatefulSet's revisions and ensures that the newest one has its template.
func (r *reconciler) historyOf(ctx context.Context, set *appsv1.StatefulSet, selector labels.Selector) (history, error) {
	all, err := r.revisions.List(ctx, set, selector)
	if err != nil {
		return history{}, err
	}
	update, err := r.updateRevision(ctx, set, all)
	if errors.Is(err, revisions.ErrNameTaken) {
		err = errors.Join(err, r.countCollision(ctx, set))
	}
	if err != nil {
		return history{}, fmt.Errorf("failed to construct revisions of StatefulSet: %w", err)
	}
	h := history{update: revision{update.Name, &set.Spec.Template}, all: all}
	h.current = h.update
	for _, old := range all {
		if old.Name != set.Status.CurrentRevision || old.Name == update.Name {
			continue
		}
		template, err := revisions.Template(old)
		if err != nil {
			return history{}, err
		}
		h.current = revision{old.Name, template}
	}
	return h, nil
}

// updateRevision returns the revision with the template of the StatefulSet. It creates it, or
// makes it the newest.
func (r *reconciler) updateRevision(ctx context.Context, set *appsv1.StatefulSet, all []*appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	data, err := revisions.PatchTo(&set.Spec.Template)
	if err != nil {
		return nil, err
	}
	same, others := revisions.Split(all, data)
	if len(same) == 0 && len(others) > 0 && isTemplateOf(set, others[len(others)-1]) {
		return others[len(others)-1], nil
	}
	return r.revisions.Current(ctx, set, r.revisions.New(set, set.Spec.Template.Labels, data, set.Status.CollisionCount), same, others)
}

// isTemplateOf reports whether a revision holds the template of the StatefulSet in another
// encoding: another server of the API wrote it. A new revision would restart all pods.
func isTemplateOf(set *appsv1.StatefulSet, latest *appsv1.ControllerRevision) bool {
	template, err := revisions.Template(latest)
	return err == nil && apiequality.Semantic.DeepEqual(*template, set.Spec.Template)
}

// countCollision gives the template another hash in the next pass.
func (r *reconciler) countCollision(ctx context.Context, set *appsv1.StatefulSet) error {
	updated := set.DeepCopy()
	updated.Status.CollisionCount = ptr.To(ptr.Deref(set.Status.CollisionCount, 0) + 1)
	klog.FromContext(ctx).Info("Hash collision of a ControllerRevision, trying another name", "statefulSet", klog.KObj(set), "collisionCount", *updated.Status.CollisionCount)
	return r.client.Status().Update(ctx, updated)
}

// trim deletes the oldest revisions that are not in use beyond revisionHistoryLimit.
func (r *reconciler) trim(ctx context.Context, set *appsv1.StatefulSet, h history, claimed []*corev1.Pod) error {
	limit := int(ptr.Deref(set.Spec.RevisionHistoryLimit, 10))
	if limit < 0 {
		return nil
	}
	live := map[string]bool{h.current.name: true, h.update.name: true}
	for _, pod := range claimed {
		live[revisionOf(pod)] = true
	}
	surplus := -limit
	for _, revision := range h.all {
		if !live[revision.Name] {
			surplus++
		}
	}
	return r.revisions.Trim(ctx, set, h.all, surplus, func(revision *appsv1.ControllerRevision) bool { return live[revision.Name] })
}

// lastHistory returns the revisions of the last status, for a StatefulSet that is being deleted:
// the collector may delete its revisions before its pods.
func lastHistory(set *appsv1.StatefulSet) history {
	return history{current: revision{name: set.Status.CurrentRevision}, update: revision{name: set.Status.UpdateRevision}}
}
