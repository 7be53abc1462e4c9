// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// object is a pointer to a type of the API.
type object[O any] interface {
	*O
	client.Object
}

// kind is what the controller must know of a kind whose objects keep pods.
type kind[O any, P object[O]] struct {
	// name is the identity under which its pods are kept.
	name string
	// gvk is what controller references name.
	gvk schema.GroupVersionKind
	// list reads objects of the kind.
	list func(context.Context, client.Reader, ...client.ListOption) ([]O, error)
	// view is the object as a ReplicaSet, from which everything is decided. It shares
	// memory with the object and is never written.
	view func(P) *appsv1.ReplicaSet
	// setStatus writes a decided status into an object.
	setStatus func(P, appsv1.ReplicaSetStatus)
	// countsTerminating says that the status has a field for pods which terminate
	// (KEP-3973).
	countsTerminating bool
}
