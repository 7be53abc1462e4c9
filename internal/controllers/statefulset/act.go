// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// act carries out a plan, and stops after the first step that fails. It returns the pods that
// it deleted.
func (r *reconciler) act(ctx context.Context, v view, p plan) (removed []*corev1.Pod, err error) {
	p = p.bound(burst)
	if len(p.create) > 0 {
		if ok, err := owned.Confirm(ctx, r.live, v.set); !ok {
			return nil, err
		}
	}
	steps := []struct {
		replicas []replica
		do       func(context.Context, view, replica) error
	}{
		{p.create, r.create}, {p.supply, r.supply}, {p.repair, r.repair}, {p.release, r.release},
	}
	for _, step := range steps {
		if _, err := pods.SlowStart(len(step.replicas), func(i int) error { return step.do(ctx, v, step.replicas[i]) }); err != nil {
			return nil, err
		}
	}
	_, err = pods.Parallel(len(p.remove), func(i int) error { return r.remove(ctx, v, p.remove[i]) })
	return p.remove, err
}

// bound limits what one pass creates and deletes, so that a large StatefulSet reports its
// progress and leaves room for others.
func (p plan) bound(n int) plan {
	p.create = p.create[:min(n, len(p.create))]
	p.remove = p.remove[:min(n, len(p.remove))]
	return p
}

// create creates the pod of a replica, after its claims.
func (r *reconciler) create(ctx context.Context, v view, at replica) error {
	at.pod = newPod(v.set, v.revisionFor(at), at.ordinal)
	err := r.supply(ctx, v, at)
	if err == nil {
		err = r.client.Create(ctx, at.pod)
	}
	// Creation always fails in a terminating namespace.
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	// The pod of a previous pass, or another's pod: an event at each attempt would not help.
	if apierrors.IsAlreadyExists(err) {
		return err
	}
	r.podEvent(v, "Create", at.pod, err)
	if err == nil {
		r.ledger.Wrote(v.set, at.pod)
	}
	return err
}

// supply creates the missing claims of a replica, and corrects the owners of the others.
func (r *reconciler) supply(ctx context.Context, v view, at replica) error {
	var errs []error
	for i, claim := range at.claims {
		switch {
		case claim == nil:
			errs = append(errs, r.createClaim(ctx, v, at, i))
		case claim.DeletionTimestamp != nil:
			errs = append(errs, fmt.Errorf("pvc %s is being deleted", claim.Name))
		default:
			errs = append(errs, r.correctOwners(ctx, v, at.pod, claim, false))
		}
	}
	return errors.Join(errs...)
}

func (r *reconciler) createClaim(ctx context.Context, v view, at replica, i int) error {
	claim := newClaim(v.set, &v.set.Spec.VolumeClaimTemplates[i], at.ordinal)
	claim.OwnerReferences, _ = v.retention.owners(claim, at.pod, false)
	err := r.client.Create(ctx, claim)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	if !apierrors.IsAlreadyExists(err) {
		r.claimEvent(v, claim, at.pod, err)
	}
	if err != nil {
		return fmt.Errorf("failed to create PVC %s: %w", claim.Name, err)
	}
	return nil
}

// correctOwners gives a claim the owners that the retention policy asks for.
func (r *reconciler) correctOwners(ctx context.Context, v view, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, surplus bool) error {
	if v.retention.conflicts(claim, pod) { // the message has upstream's spelling
		r.events.Eventf(v.set, corev1.EventTypeWarning, "ConflictingController", "PersistentVolumeClaim %s has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim", claim.Name)
	}
	refs, differ := v.retention.owners(claim, pod, surplus)
	if !differ {
		return nil
	}
	updated := claim.DeepCopy()
	updated.OwnerReferences = refs
	if err := r.client.Update(ctx, updated); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not update claim %s for delete policy ownerRefs: %w", claim.Name, err)
	}
	return nil
}

// release corrects the owners of the claims of a surplus replica.
func (r *reconciler) release(ctx context.Context, v view, at replica) error {
	var errs []error
	for _, claim := range at.claims {
		if claim != nil {
			errs = append(errs, r.correctOwners(ctx, v, at.pod, claim, true))
		}
	}
	return errors.Join(errs...)
}

// repair corrects the identity and the volumes of a pod, and its claims. The API refuses other
// volumes for an existing pod; the event says so.
func (r *reconciler) repair(ctx context.Context, v view, at replica) error {
	pod := at.pod.DeepCopy()
	identify(pod, at.ordinal)
	if !isMounted(v.set, pod, at.ordinal) {
		mount(v.set, pod, at.ordinal)
	}
	err := r.supply(ctx, v, at)
	if err == nil && !apiequality.Semantic.DeepEqual(pod, at.pod) {
		if err = r.client.Update(ctx, pod); err == nil {
			r.ledger.Wrote(v.set, pod)
		}
	}
	r.podEvent(v, "Update", pod, err)
	return err
}

// remove deletes a pod, which keeps its name until it has stopped.
func (r *reconciler) remove(ctx context.Context, v view, pod *corev1.Pod) error {
	err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil
	}
	r.podEvent(v, "Delete", pod, err)
	if err == nil {
		r.ledger.Terminating(v.set, pod, v.now)
	}
	return err
}

func (r *reconciler) podEvent(v view, verb string, pod *corev1.Pod, err error) {
	if err != nil {
		r.events.Eventf(v.set, corev1.EventTypeWarning, "Failed"+verb, "%s Pod %s in StatefulSet %s failed error: %v", verb, pod.Name, v.set.Name, err)
		return
	}
	r.events.Eventf(v.set, corev1.EventTypeNormal, "Successful"+verb, "%s Pod %s in StatefulSet %s successful", verb, pod.Name, v.set.Name)
}

func (r *reconciler) claimEvent(v view, claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, err error) {
	if err != nil {
		r.events.Eventf(v.set, corev1.EventTypeWarning, "FailedCreate", "Create Claim %s for Pod %s in StatefulSet %s failed error: %v", claim.Name, pod.Name, v.set.Name, err)
		return
	}
	r.events.Eventf(v.set, corev1.EventTypeNormal, "SuccessfulCreate", "Create Claim %s Pod %s in StatefulSet %s success", claim.Name, pod.Name, v.set.Name)
}
