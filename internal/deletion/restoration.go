// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Restoration is what is remembered of an object that an undeletion created: which deleted
// object it is the successor of. References of other deleted objects still name the
// predecessor.
type Restoration struct {
	// Resource, Namespace and Name are those of both objects.
	Resource        schema.GroupResource
	Namespace, Name string
	// UID is that of the successor, From that of the deleted object, and Origin that of the
	// first object in the chain: the one that no undeletion created.
	UID, From, Origin types.UID
	// Root is the UID that the root of the undeletion had, and State the revision of the
	// state that it restored.
	Root  types.UID
	State int64
	Time  metav1.MicroTime
	// Revision is that of the record itself.
	Revision int64
}

// LostReference is an owner reference that an undeletion could not restore, because the owner
// or the dependent did not exist. It is restored with whichever comes back later.
type LostReference struct {
	// Resource, Namespace, Name and UID say which object had the reference.
	Resource        schema.GroupResource
	Namespace, Name string
	UID             types.UID
	// Owner is the reference as it was.
	Owner metav1.OwnerReference
}

// Restorations are what is remembered of undeletions.
type Restorations interface {
	// Restored returns what is remembered of objects in a namespace and of cluster-scoped
	// ones; without a namespace, of all.
	Restored(ctx context.Context, namespace string) ([]Restoration, []LostReference, error)
	// AddRestored adds to it. To add what was added before changes nothing that matters.
	AddRestored(ctx context.Context, restored []Restoration, lost []LostReference) error
	// ForgetLost drops references that are not lost any more.
	ForgetLost(ctx context.Context, found []LostReference) error
}
