// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespaced holds predicates and an event handler for controllers that keep one object
// of a fixed name in every namespace. Their requests name the namespace.
package namespaced

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Active reports whether the namespace exists and is not being deleted. In any other
// namespace the API would refuse to create objects.
func Active(ctx context.Context, c client.Reader, name string) (bool, error) {
	ns := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return ns.Status.Phase == corev1.NamespaceActive && ns.DeletionTimestamp == nil, nil
}

// ToNamespace returns a handler that maps an object to a request for its namespace.
func ToNamespace() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: obj.GetNamespace()}}}
	})
}

// Activated passes the events after which a namespace may lack its object: it was
// created, or has become active.
func Activated() predicate.Predicate {
	active := func(obj client.Object) bool {
		ns, ok := obj.(*corev1.Namespace)
		return ok && ns.Status.Phase == corev1.NamespaceActive
	}
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return active(e.ObjectNew) && !active(e.ObjectOld) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// Deleted passes deletions of objects of the given name.
func Deleted(name string) predicate.Predicate {
	return predicate.And(named(name), predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	})
}

// Changed passes deletions and updates of objects of the given name.
func Changed(name string) predicate.Predicate {
	return predicate.And(named(name), predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
	})
}

func named(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == name })
}
