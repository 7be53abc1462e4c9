// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package devicetaint

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
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

// Name is the identity of the controllers, and the source of their events.
const Name = "device-taint-eviction-controller"

const workers = 10

// Add returns a function that registers the controllers. With gangs, claims may be reserved for PodGroups.
func Add(gangs bool) func(control.Env) error {
	return func(env control.Env) error {
		counts := &evicted{counts: map[types.UID]int{}}
		if err := addEvictor(&evictor{Env: env, gangs: gangs, evicted: counts, pending: map[types.NamespacedName]types.UID{}}); err != nil {
			return err
		}
		return addReporter(&reporter{Env: env, gangs: gangs, evicted: counts})
	}
}

func addEvictor(r *evictor) error {
	return ctrl.NewControllerManagedBy(r.Manager).
		Named(Name).
		WithOptions(r.Options(workers)).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(wantsClaims))).
		Watches(&resourcev1.ResourceClaim{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			return r.podsOf(ctx, obj.(*resourcev1.ResourceClaim))
		})).
		Watches(&resourcev1.ResourceSlice{}, handler.EnqueueRequestsFromMapFunc(r.podsOn),
			builder.WithPredicates(eitherState(func(obj client.Object) bool { return tainted(obj.(*resourcev1.ResourceSlice)) }))).
		Watches(&resourcev1.DeviceTaintRule{}, handler.EnqueueRequestsFromMapFunc(r.podsOn),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}, eitherState(func(obj client.Object) bool { return evicts(obj.(*resourcev1.DeviceTaintRule)) }))).
		Complete(r)
}

func addReporter(r *reporter) error {
	return ctrl.NewControllerManagedBy(r.Manager).
		Named(Name+"-status").
		WithOptions(r.Options(1)).
		For(&resourcev1.DeviceTaintRule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.evictingRules), builder.WithPredicates(predicate.NewPredicateFuncs(isEvicted))).
		Watches(&resourcev1.ResourceClaim{}, handler.EnqueueRequestsFromMapFunc(r.evictingRules)).
		Complete(r)
}

// eitherState selects objects of which the old or the new state matches.
func eitherState(matches func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return matches(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return matches(e.ObjectOld) || matches(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return matches(e.Object) },
	}
}

func evicts(rule *resourcev1.DeviceTaintRule) bool {
	return rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute
}

func wantsClaims(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && len(pod.Spec.ResourceClaims) > 0
}

// isEvicted reports whether a pod was evicted from a device.
func isEvicted(obj client.Object) bool {
	target := pods.Condition(obj.(*corev1.Pod), corev1.DisruptionTarget)
	return target != nil && target.Reason == disruptionReason
}

// podsOf returns the pods that a claim is reserved for.
func (r *evictor) podsOf(ctx context.Context, claim *resourcev1.ResourceClaim) []reconcile.Request {
	var requests []reconcile.Request
	add := func(name string) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: name}})
	}
	for _, user := range claim.Status.ReservedFor {
		switch {
		case user.APIGroup == "" && user.Resource == "pods":
			add(user.Name)
		case user.APIGroup == schedulingv1beta1.GroupName && user.Resource == "podgroups" && r.gangs:
			var list corev1.PodList
			if r.Client.List(ctx, &list, client.InNamespace(claim.Namespace), client.UnsafeDisableDeepCopy) != nil {
				continue
			}
			for i := range list.Items {
				if group := list.Items[i].Spec.SchedulingGroup; group != nil && group.PodGroupName != nil && *group.PodGroupName == user.Name {
					add(list.Items[i].Name)
				}
			}
		}
	}
	return requests
}

// podsOn returns the pods of all claims with a device of a slice, or one that a rule selects.
func (r *evictor) podsOn(ctx context.Context, obj client.Object) []reconcile.Request {
	var list resourcev1.ResourceClaimList
	if r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	rule, ok := obj.(*resourcev1.DeviceTaintRule)
	if !ok {
		spec := obj.(*resourcev1.ResourceSlice).Spec
		rule = &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &spec.Driver, Pool: &spec.Pool.Name}}}
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if allocated(rule, &list.Items[i]) > 0 {
			requests = append(requests, r.podsOf(ctx, &list.Items[i])...)
		}
	}
	return requests
}

// evictingRules returns the rules whose status may change with the pods that use devices.
func (r *reporter) evictingRules(ctx context.Context, _ client.Object) []reconcile.Request {
	var list resourcev1.DeviceTaintRuleList
	if r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if evicts(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
