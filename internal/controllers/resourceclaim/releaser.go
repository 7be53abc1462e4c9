// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// releaser frees the claims of pods and PodGroups that do not need them any more.
type releaser struct {
	client client.Client
	live   client.Reader
	// gangs is set if PodGroups are served.
	gangs bool
}

// Reconcile removes users that do not need a claim. With the last one it removes the allocation and
// the finalizer, and deletes the claim if it was created for a pod that will not run.
func (r *releaser) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim := &resourcev1.ResourceClaim{}
	if err := r.client.Get(ctx, req.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	users, err := r.users(ctx, claim)
	if err != nil {
		return ctrl.Result{}, err
	}
	// Claims that nobody uses keep their allocation, unless they were used before: a user may have
	// allocated them in advance.
	freed := len(users) < len(claim.Status.ReservedFor)
	if freed {
		err = r.free(ctx, claim, users)
	} else if len(users) == 0 && claim.DeletionTimestamp != nil && hasFinalizer(claim) {
		err = r.free(ctx, claim, nil)
	}
	if err != nil || len(users) > 0 {
		return ctrl.Result{}, owned.IgnoreStale(err)
	}
	return ctrl.Result{}, owned.IgnoreStale(r.deleteUnneeded(ctx, claim))
}

// users returns the users of a claim without the pods and PodGroups that do not need it.
func (r *releaser) users(ctx context.Context, claim *resourcev1.ResourceClaim) ([]resourcev1.ResourceClaimConsumerReference, error) {
	var users []resourcev1.ResourceClaimConsumerReference
	for _, user := range claim.Status.ReservedFor {
		needs, err := r.needs(ctx, claim.Namespace, user)
		if err != nil {
			return nil, err
		}
		if needs {
			users = append(users, user)
		}
	}
	return users, nil
}

// needs reports whether a user of a claim still needs it. Users of unknown kinds always do.
func (r *releaser) needs(ctx context.Context, namespace string, user resourcev1.ResourceClaimConsumerReference) (bool, error) {
	switch {
	case user.APIGroup == "" && user.Resource == "pods":
		pod := &corev1.Pod{}
		cached, exists, err := r.find(ctx, namespace, user, pod)
		return exists && !(cached && isDone(pod)), err
	case user.APIGroup == schedulingv1beta1.GroupName && user.Resource == "podgroups" && r.gangs:
		_, exists, err := r.find(ctx, namespace, user, &schedulingv1beta1.PodGroup{})
		return exists, err
	default:
		return true, nil
	}
}

// find reads a user of a claim, and reports whether it exists, and whether the cache has it. One that the
// cache does not have may be new, so it is read from the API.
func (r *releaser) find(ctx context.Context, namespace string, user resourcev1.ResourceClaimConsumerReference, into client.Object) (cached, exists bool, err error) {
	key := client.ObjectKey{Namespace: namespace, Name: user.Name}
	err = r.client.Get(ctx, key, into, client.UnsafeDisableDeepCopy)
	if err == nil && into.GetUID() == user.UID {
		return true, true, nil
	}
	// Reading into an object of the cache would change it.
	now := into.DeepCopyObject().(client.Object)
	err = r.live.Get(ctx, key, now)
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	return false, err == nil && now.GetUID() == user.UID, err
}

// free writes the remaining users of a claim. Without users the claim loses its allocation, and then
// its finalizer.
func (r *releaser) free(ctx context.Context, claim *resourcev1.ResourceClaim, users []resourcev1.ResourceClaimConsumerReference) error {
	deallocate := len(users) == 0 && hasFinalizer(claim)
	if len(users) < len(claim.Status.ReservedFor) || deallocate && claim.Status.Allocation != nil {
		claim.Status.ReservedFor = users
		if deallocate {
			claim.Status.Allocation = nil
		}
		if err := r.client.Status().Update(ctx, claim); err != nil {
			return err
		}
	}
	if claim.Status.Allocation != nil || !hasFinalizer(claim) {
		return nil
	}
	claim.Finalizers = slices.DeleteFunc(claim.Finalizers, isFinalizer)
	return r.client.Update(ctx, claim)
}

func hasFinalizer(claim *resourcev1.ResourceClaim) bool {
	return slices.ContainsFunc(claim.Finalizers, isFinalizer)
}

func isFinalizer(name string) bool { return name == resourcev1.Finalizer }

// deleteUnneeded deletes a claim that nobody uses if it was created for a pod that will not run. The
// pod may be kept for a long time, and the garbage collector deletes the claim only with it.
func (r *releaser) deleteUnneeded(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	owner := metav1.GetControllerOf(claim)
	if owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" || claim.DeletionTimestamp != nil {
		return nil
	}
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: owner.Name}, pod, client.UnsafeDisableDeepCopy)
	if err != nil || ownership.IsHeld(pod) || pod.UID == owner.UID && !isDone(pod) {
		// The cache may not have the pod yet. If it is gone, its claim is collected.
		return client.IgnoreNotFound(err)
	}
	return r.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
}
