// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

const (
	// Name is the identity of the controllers.
	Name = "resource-claim-controller"
	// Source is the source of their events.
	Source = "resource_claim"

	workers = 10
)

// Add returns a function that registers the controllers, with those for PodGroups if gangs are served.
func Add(gangs bool) func(control.Env) error {
	return func(env control.Env) error {
		if err := addIndexes(env, gangs); err != nil {
			return err
		}
		if err := addGenerator(env, gangs); err != nil {
			return err
		}
		if gangs {
			if err := addGroupGenerator(env); err != nil {
				return err
			}
		}
		return addReleaser(env, gangs)
	}
}

func addIndexes(env control.Env, gangs bool) error {
	type index struct {
		kind   client.Object
		field  string
		values client.IndexerFunc
	}
	indexes := []index{
		{&corev1.Pod{}, claimIndex, claimsOf},
		{&corev1.Pod{}, templateIndex, templatesOf},
		{&resourcev1.ResourceClaim{}, owned.ControllerIndex, owned.ControllerOf},
	}
	if gangs {
		indexes = append(indexes,
			index{&corev1.Pod{}, groupIndex, groupsOf},
			index{&schedulingv1beta1.PodGroup{}, claimIndex, claimsOf},
			index{&schedulingv1beta1.PodGroup{}, templateIndex, templatesOf})
	}
	for _, i := range indexes {
		if _, err := owned.EnsureIndex(context.Background(), env.Manager.GetCache(), i.kind, i.field, i.values); err != nil {
			return err
		}
	}
	return nil
}

func addGenerator(env control.Env, gangs bool) error {
	g := newGenerator(env, gangs)
	with := g.requestsBy(&corev1.PodList{})
	b := ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(wantsClaims))).
		Watches(&resourcev1.ResourceClaimTemplate{}, with(templateIndex)).
		Watches(&resourcev1.ResourceClaim{}, with(claimIndex))
	if gangs {
		b = b.Watches(&schedulingv1beta1.PodGroup{}, with(groupIndex))
	}
	return b.Complete(g)
}

func addGroupGenerator(env control.Env) error {
	g := newGroupGenerator(env)
	with := g.requestsBy(&schedulingv1beta1.PodGroupList{})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name+"-podgroups").
		WithOptions(env.Options(workers)).
		For(&schedulingv1beta1.PodGroup{}, builder.WithPredicates(predicate.NewPredicateFuncs(wantsClaims))).
		Watches(&resourcev1.ResourceClaimTemplate{}, with(templateIndex)).
		Watches(&resourcev1.ResourceClaim{}, with(claimIndex)).
		Complete(g)
}

// requestsBy returns handlers that find owners by an index. The owners are of the kind of the list.
func (m *maker) requestsBy(list client.ObjectList) func(field string) handler.EventHandler {
	return func(field string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			return m.requests(ctx, list.DeepCopyObject().(client.ObjectList), field, obj)
		})
	}
}

func addReleaser(env control.Env, gangs bool) error {
	r := &releaser{client: env.Client, live: env.Live, gangs: gangs}
	claims := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return claimRequests(obj)
	})
	b := ctrl.NewControllerManagedBy(env.Manager).
		Named(Name+"-releaser").
		WithOptions(env.Options(workers)).
		For(&resourcev1.ResourceClaim{}).
		Watches(&corev1.Pod{}, claims, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return isDone(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool { return isDone(e.ObjectNew) },
		}))
	if gangs {
		b = b.Watches(&schedulingv1beta1.PodGroup{}, claims, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
		}))
	}
	return b.Complete(r)
}

// wantsClaims reports whether the spec of a pod or PodGroup names claims or templates.
func wantsClaims(obj client.Object) bool {
	switch obj := obj.(type) {
	case *corev1.Pod:
		return len(obj.Spec.ResourceClaims) > 0
	case *schedulingv1beta1.PodGroup:
		return len(obj.Spec.ResourceClaims) > 0
	}
	return false
}

// isDone reports whether a pod does not run, and will not.
func isDone(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && (pods.IsTerminal(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == "")
}
