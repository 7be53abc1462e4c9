// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// object is a pointer to an API type.
type object[O any] interface {
	*O
	client.Object
}

// kind describes a kind of objects with replicas.
type kind[O any, P object[O]] struct {
	// name is the identity of the controller.
	name string
	// gvk is the kind that controller references name.
	gvk schema.GroupVersionKind
	// list lists objects of the kind.
	list func(context.Context, client.Reader, ...client.ListOption) ([]O, error)
	// view returns the object as a ReplicaSet, from which all decisions are made. It
	// shares memory with the object and is never written.
	view func(P) *appsv1.ReplicaSet
	// setStatus sets the status of an object.
	setStatus func(P, appsv1.ReplicaSetStatus)
	// countsTerminating is set if the status counts terminating pods (KEP-3973).
	countsTerminating bool
}
