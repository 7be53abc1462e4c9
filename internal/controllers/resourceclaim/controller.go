// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
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

	// claimIndex finds pods by their ResourceClaims, templateIndex by their templates.
	claimIndex    = ".resourceClaims"
	templateIndex = ".resourceClaimTemplates"
)

// Add registers the controllers.
func Add(env control.Env) error {
	shared := env.Manager.GetCache()
	for field, values := range map[string]client.IndexerFunc{claimIndex: claimsOf, templateIndex: templatesOf} {
		if _, err := owned.EnsureIndex(context.Background(), shared, &corev1.Pod{}, field, values); err != nil {
			return err
		}
	}
	if _, err := owned.EnsureIndex(context.Background(), shared, &resourcev1.ResourceClaim{}, owned.ControllerIndex, owned.ControllerOf); err != nil {
		return err
	}
	if err := addGenerator(env); err != nil {
		return err
	}
	return addReleaser(env)
}

func addGenerator(env control.Env) error {
	g := newGenerator(env)
	podsBy := func(field string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			return g.podsWith(ctx, field, obj)
		})
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(wantsClaims))).
		Watches(&resourcev1.ResourceClaimTemplate{}, podsBy(templateIndex)).
		Watches(&resourcev1.ResourceClaim{}, podsBy(claimIndex)).
		Complete(g)
}

func addReleaser(env control.Env) error {
	r := &releaser{client: env.Client, live: env.Live}
	claims := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return claimRequests(obj)
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name+"-releaser").
		WithOptions(env.Options(workers)).
		For(&resourcev1.ResourceClaim{}).
		Watches(&corev1.Pod{}, claims, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return isDone(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool { return isDone(e.ObjectNew) },
		})).
		Complete(r)
}

func wantsClaims(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && len(pod.Spec.ResourceClaims) > 0
}

// isDone reports whether a pod does not run, and will not.
func isDone(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && (pods.IsTerminal(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == "")
}

// claimsOf returns the names of a pod's claims, with the one that the scheduler made for its extended
// resources. It is the index function of claimIndex.
func claimsOf(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	var names []string
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil {
			names = append(names, *name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	return names
}

// templatesOf is the index function of templateIndex.
func templatesOf(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	var names []string
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimTemplateName; name != nil {
			names = append(names, *name)
		}
	}
	return names
}

func claimRequests(obj client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range claimsOf(obj) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}})
	}
	return requests
}
