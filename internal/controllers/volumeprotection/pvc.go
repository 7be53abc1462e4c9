// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeprotection

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

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// ClaimName is the identity of the PersistentVolumeClaim controller.
const ClaimName = "pvc-protection-controller"

const (
	claimWorkers   = 5
	claimFinalizer = "kubernetes.io/pvc-protection"
)

// AddClaims registers the controller that protects a PersistentVolumeClaim while a pod on
// a node uses it, and reports in the status of a bound claim whether any pod refers to it
// (KEP-5541). It watches claims and the pods that use them.
//
// It looks for pods in the cache first, but lists them from the API before it concludes
// that a claim is unused: the cache may lack a pod that was just bound. Pending claims of
// a namespace are reconciled together and share that list, so that deleting a namespace
// with a thousand claims lists its pods once.
func AddClaims(env control.Env) error {
	if err := pods.IndexVolumeClaims(context.Background(), env.Manager.GetCache()); err != nil {
		return err
	}
	r := &claimReconciler{env: env}
	claims := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return r.pending.add(obj.GetNamespace(), obj.GetName())
	})
	claimsOfPod := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return r.pending.add(obj.GetNamespace(), pods.VolumeClaims(obj)...)
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(ClaimName).
		WithOptions(env.Options(claimWorkers)).
		Watches(&corev1.PersistentVolumeClaim{}, claims).
		Watches(&corev1.Pod{}, claimsOfPod, builder.WithPredicates(predicate.Funcs{UpdateFunc: mayFreeClaims})).
		Complete(r)
}

// mayFreeClaims reports whether an update of a pod may free its claims: the pod has ended,
// or was replaced by another one of the same name.
func mayFreeClaims(e event.UpdateEvent) bool {
	pod, ok := e.ObjectNew.(*corev1.Pod)
	old, oldOK := e.ObjectOld.(*corev1.Pod)
	return ok && oldOK && (pod.UID != old.UID || pods.HasEnded(pod) != pods.HasEnded(old) || isShutDown(pod) != isShutDown(old))
}

// isShutDown reports whether a pod's node has finished deleting it.
func isShutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// claimReconciler reconciles the pending claims of one namespace together.
type claimReconciler struct {
	env     control.Env
	pending pending
}

// Reconcile implements reconcile.Reconciler. A request names a namespace.
func (r *claimReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	// Each Reconcile has its own protector, whose list of pods is newer than the events that
	// woke it.
	claims, names := newClaimProtector(r.env), r.pending.take(req.Namespace)
	var errs []error
	for _, name := range names {
		claim := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: req.Namespace, Name: name}}
		if _, err := claims.Reconcile(ctx, claim); err != nil {
			r.pending.add(req.Namespace, name)
			errs = append(errs, err)
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// newClaimProtector returns a protector for one pass over the claims of a namespace.
func newClaimProtector(env control.Env) *protector[*corev1.PersistentVolumeClaim] {
	u := &podFinder{client: env.Client, live: env.Live, clock: env.Clock}
	return &protector[*corev1.PersistentVolumeClaim]{
		client: env.Client, finalizer: claimFinalizer,
		newObject: func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} },
		isUsed: func(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
			return u.isUsed(ctx, claim, blocks)
		},
		report: u.report,
	}
}

// podFinder finds the pods that use claims.
type podFinder struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	// listed holds the namespace's pods after they were listed from the API.
	listed *corev1.PodList
}

// use reports whether a pod uses a claim, in one of two senses: blocks or refers.
type use func(*corev1.Pod, *corev1.PersistentVolumeClaim) bool

// isUsed reports whether a pod uses the claim.
func (u *podFinder) isUsed(ctx context.Context, claim *corev1.PersistentVolumeClaim, uses use) (bool, error) {
	if used, err := u.inCache(ctx, claim, uses); err != nil || used {
		return used, err
	}
	return u.inAPI(ctx, claim, uses)
}

// inCache reports whether a pod in the cache uses the claim.
func (u *podFinder) inCache(ctx context.Context, claim *corev1.PersistentVolumeClaim, uses use) (bool, error) {
	list := &corev1.PodList{}
	byName := client.MatchingFields{pods.VolumeClaimIndex: claim.Name}
	err := u.client.List(ctx, list, client.InNamespace(claim.Namespace), byName, client.UnsafeDisableDeepCopy)
	return anyOf(list, claim, uses), err
}

// inAPI reports whether a pod in the API uses the claim. It lists the pods once per pass.
func (u *podFinder) inAPI(ctx context.Context, claim *corev1.PersistentVolumeClaim, uses use) (bool, error) {
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

// blocks reports whether a pod delays the deletion of the claim: it is on a node and uses
// the claim. A claim made for the pod's ephemeral volume is free once the node has shut
// the pod down; any other claim once the pod is removed, since the node may still have the
// volume mounted.
func blocks(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return pod.Spec.NodeName != "" && (names(pod, claim) || !isShutDown(pod) && isMadeFor(pod, claim))
}

// refers reports whether a pod that has not ended uses the claim.
func refers(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return !pods.HasEnded(pod) && (names(pod, claim) || isMadeFor(pod, claim))
}

// names reports whether a volume of the pod names the claim.
func names(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
	})
}

// isMadeFor reports whether the claim was made for an ephemeral volume of the pod.
func isMadeFor(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Ephemeral != nil && ephemeral.VolumeClaimName(pod, &v) == claim.Name && ephemeral.VolumeIsForPod(pod, claim) == nil
	})
}

// report sets the condition Unused of a bound claim.
func (u *podFinder) report(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	used, err := u.inCache(ctx, claim, refers)
	if err != nil || !used && unusedStatus(claim) == corev1.ConditionTrue {
		return err
	}
	if !used {
		if used, err = u.inAPI(ctx, claim, refers); err != nil {
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
	if unusedStatus(claim) == unused.Status {
		return nil
	}
	claim = claim.DeepCopy()
	claim.Status.Conditions = append(slices.DeleteFunc(claim.Status.Conditions, isUnused), unused)
	return u.client.Status().Update(ctx, claim)
}

// unusedStatus returns the status of the claim's condition Unused, or "".
func unusedStatus(claim *corev1.PersistentVolumeClaim) corev1.ConditionStatus {
	if i := slices.IndexFunc(claim.Status.Conditions, isUnused); i >= 0 {
		return claim.Status.Conditions[i].Status
	}
	return ""
}

func isUnused(c corev1.PersistentVolumeClaimCondition) bool {
	return c.Type == corev1.PersistentVolumeClaimUnused
}
