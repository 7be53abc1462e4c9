// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pvcprotection keeps a PersistentVolumeClaim that is deleted as long as a pod
// on a node has it, and says of a bound claim whether any pod refers to it (KEP-5541).
//
// The pods are looked for in the cache first. That nobody uses a claim is believed only
// of the API itself: of a pod that was just bound, the cache may not know. Claims that wait
// to be looked at are taken together, a namespace at a time, and share one list of its
// pods: a namespace of a thousand claims that goes asks once, not a thousand times.
package pvcprotection

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/pods"
	"github.com/kindred-project/kindred/internal/controllers/protection"
)

// Name is the controller's identity.
const Name = "pvc-protection-controller"

const (
	workers   = 5
	finalizer = "kubernetes.io/pvc-protection"
)

// Add registers the controller: woken by claims, and by pods with claims that come, end
// and go.
func Add(env control.Env) error {
	if err := env.Manager.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, pods.ClaimIndex, pods.Claims); err != nil {
		return err
	}
	r := &reconciler{env: env}
	claims := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return r.waiting.add(obj.GetNamespace(), obj.GetName())
	})
	wake := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return r.waiting.add(obj.GetNamespace(), pods.Claims(obj)...)
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		Watches(&corev1.PersistentVolumeClaim{}, claims).
		Watches(&corev1.Pod{}, wake, builder.WithPredicates(predicate.Funcs{UpdateFunc: lets})).
		Complete(r)
}

// lets says whether a pod may have let go of its claims: it has ended, or is another pod
// of the same name.
func lets(e event.UpdateEvent) bool {
	now, ok := e.ObjectNew.(*corev1.Pod)
	old, was := e.ObjectOld.(*corev1.Pod)
	return ok && was && (now.UID != old.UID || hasEnded(now) != hasEnded(old) || isShutDown(now) != isShutDown(old))
}

// hasEnded says whether nothing of a pod runs, or is to run.
func hasEnded(pod *corev1.Pod) bool {
	s := pod.Status
	return pods.IsTerminal(pod) || pod.DeletionTimestamp != nil &&
		!slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses), mayRun)
}

func mayRun(s corev1.ContainerStatus) bool {
	return s.State.Terminated == nil && s.State.Waiting == nil
}

// isShutDown says whether a pod's node has done with it.
func isShutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// reconciler looks at the claims of one namespace that wait for it.
type reconciler struct {
	env     control.Env
	waiting waiting
}

// Reconcile implements reconcile.Reconciler. A request is of a namespace.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Each keeper has a list of its own, made after what it looks at was known.
	keeper, names := newKeeper(r.env), r.waiting.take(req.Namespace)
	var errs []error
	for _, name := range names {
		claim := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: req.Namespace, Name: name}}
		if _, err := keeper.Reconcile(ctx, claim); err != nil {
			r.waiting.add(req.Namespace, name)
			errs = append(errs, err)
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// newKeeper returns one for the claims of one namespace that are looked at together.
func newKeeper(env control.Env) *protection.Keeper[*corev1.PersistentVolumeClaim] {
	u := &users{client: env.Client, live: env.Live, clock: env.Clock}
	return &protection.Keeper[*corev1.PersistentVolumeClaim]{
		Client: env.Client, Finalizer: finalizer,
		New: func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} },
		Used: func(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
			return u.any(ctx, claim, holds)
		},
		Living: u.report,
	}
}

// users are the pods that use claims.
type users struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	// listed are the namespace's pods, once the API was asked.
	listed *corev1.PodList
}

// use is a sense in which a pod may use a claim.
type use func(*corev1.Pod, *corev1.PersistentVolumeClaim) bool

// any says whether some pod uses the claim.
func (u *users) any(ctx context.Context, claim *corev1.PersistentVolumeClaim, uses use) (bool, error) {
	if known, err := u.known(ctx, claim, uses); err != nil || known {
		return known, err
	}
	return u.found(ctx, claim, uses)
}

// known looks in the cache.
func (u *users) known(ctx context.Context, claim *corev1.PersistentVolumeClaim, uses use) (bool, error) {
	list := &corev1.PodList{}
	byName := client.MatchingFields{pods.ClaimIndex: claim.Name}
	err := u.client.List(ctx, list, client.InNamespace(claim.Namespace), byName, client.UnsafeDisableDeepCopy)
	return anyOf(list, claim, uses), err
}

// found asks the API, once for all claims that are looked at together.
func (u *users) found(ctx context.Context, claim *corev1.PersistentVolumeClaim, uses use) (bool, error) {
	if u.listed == nil {
		list := &corev1.PodList{}
		if err := u.live.List(ctx, list, client.InNamespace(claim.Namespace)); err != nil {
			return false, err
		}
		u.listed = list
	}
	return anyOf(u.listed, claim, uses), nil
}

func anyOf(list *corev1.PodList, claim *corev1.PersistentVolumeClaim, uses use) bool {
	for i := range list.Items {
		if uses(&list.Items[i], claim) {
			return true
		}
	}
	return false
}

// holds says whether a pod keeps the claim from being gone: it is on a node. What was
// made for the pod alone is free as soon as the node is done; what it names, when it is
// gone, since its node may still have it mounted.
func holds(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return pod.Spec.NodeName != "" && (names(pod, claim) || !isShutDown(pod) && has(pod, claim))
}

// refers says whether a pod runs, or is to run, with the claim.
func refers(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return !hasEnded(pod) && (names(pod, claim) || has(pod, claim))
}

// names says whether one of a pod's volumes is the claim.
func names(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
	})
}

// has says whether the claim was made for one of a pod's ephemeral volumes.
func has(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Ephemeral != nil && ephemeral.VolumeClaimName(pod, &v) == claim.Name && ephemeral.VolumeIsForPod(pod, claim) == nil
	})
}

// report says of a bound claim whether it is unused, and since when.
func (u *users) report(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	used, err := u.known(ctx, claim, refers)
	if err != nil || !used && said(claim) == corev1.ConditionTrue {
		return err
	}
	if !used {
		if used, err = u.found(ctx, claim, refers); err != nil {
			return err
		}
	}
	unused := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue,
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
		LastTransitionTime: metav1.NewTime(u.clock.Now()),
	}
	if used {
		unused.Status, unused.Reason, unused.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	if said(claim) == unused.Status {
		return nil
	}
	claim = claim.DeepCopy()
	claim.Status.Conditions = append(slices.DeleteFunc(claim.Status.Conditions, isUnused), unused)
	return u.client.Status().Update(ctx, claim)
}

// said is what the claim's status says of it; nothing at first.
func said(claim *corev1.PersistentVolumeClaim) corev1.ConditionStatus {
	if i := slices.IndexFunc(claim.Status.Conditions, isUnused); i >= 0 {
		return claim.Status.Conditions[i].Status
	}
	return ""
}

func isUnused(c corev1.PersistentVolumeClaimCondition) bool {
	return c.Type == corev1.PersistentVolumeClaimUnused
}
