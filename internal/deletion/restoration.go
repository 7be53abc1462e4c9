// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Restoration records that an object that an undeletion created is the successor of a deleted
// object. References in other deleted objects still name the predecessor.
type Restoration struct {
	// Resource, Namespace and Name are the same for both objects.
	Resource        schema.GroupResource
	Namespace, Name string
	// UID is the successor's, From the deleted object's, and Origin the UID of the first object in
	// the chain, which no undeletion created.
	UID, From, Origin types.UID
	// Root is the former UID of the undeletion's root, and State the revision whose state it
	// restored.
	Root  types.UID
	State int64
	Time  metav1.MicroTime
	// Revision is the revision of the record.
	Revision int64
}

// LostReference is an owner reference that an undeletion could not restore, because the owner or
// the dependent did not exist. The undeletion that restores the other object restores the reference
// too.
type LostReference struct {
	// Resource, Namespace, Name and UID identify the dependent.
	Resource        schema.GroupResource
	Namespace, Name string
	UID             types.UID
	// Owner is the former reference.
	Owner metav1.OwnerReference
}

// Restorations stores the records of undeletions.
type Restorations interface {
	// Restored returns the records about cluster-scoped objects and objects in a namespace, or
	// about all objects without a namespace.
	Restored(ctx context.Context, namespace string) ([]Restoration, []LostReference, error)
	// AddRestored adds records. It is idempotent.
	AddRestored(ctx context.Context, restored []Restoration, lost []LostReference) error
	// ForgetLost removes references that are restored.
	ForgetLost(ctx context.Context, found []LostReference) error
}
