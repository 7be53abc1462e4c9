// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectReference names an object of any kind.
type ObjectReference struct {
	// apiVersion is the object's group and version. In a status it is the preferred version of
	// the group.
	APIVersion string `json:"apiVersion"`
	// kind is the object's kind.
	Kind string `json:"kind"`
	// namespace is the object's namespace. It is empty for cluster-scoped objects.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the object's name.
	Name string `json:"name"`
	// uid is the object's UID. It is optional in a spec; if it is set, only the object with this
	// UID matches.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Compare orders objects by kind, group, namespace and name, the order of siblings in every
// status of this group. The result is negative if r comes before other, positive if after.
func (r ObjectReference) Compare(other ObjectReference) int {
	return cmp.Or(
		cmp.Compare(r.Kind, other.Kind),
		cmp.Compare(r.group(), other.group()),
		cmp.Compare(r.Namespace, other.Namespace),
		cmp.Compare(r.Name, other.Name),
	)
}

func (r ObjectReference) group() string {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group
}

// Standing is the garbage collector's classification of an owner reference.
type Standing string

const (
	// StandingSolid: the owner exists.
	StandingSolid Standing = "Solid"
	// StandingWaiting: the owner is being deleted in the foreground and waits for its dependents.
	StandingWaiting Standing = "Waiting"
	// StandingDangling: the owner does not exist.
	StandingDangling Standing = "Dangling"
	// StandingUnresolved: the owner cannot be looked up, because its kind is not served, or
	// because a cluster-scoped object names a namespaced owner. The object is not collected.
	StandingUnresolved Standing = "Unresolved"
	// StandingPending: the owner has not been looked up yet.
	StandingPending Standing = "Pending"
	// StandingHidden: the caller may not read the owner.
	StandingHidden Standing = "Hidden"
)

// OwnerReference is an owner reference of an object and its standing.
type OwnerReference struct {
	metav1.OwnerReference `json:",inline"`
	// standing is the garbage collector's classification of the reference, by whether the owner exists.
	Standing Standing `json:"standing"`
}

// Hold explains why an object has the annotation HoldAnnotation, and how to remove it.
type Hold struct {
	// undeletion is the root of the unfinished undeletion that set the annotation, as kubectl
	// names it, or its former UID. It is empty for an annotation that was set by hand.
	// +optional
	Undeletion string `json:"undeletion,omitempty"`
	// message explains why the object is on hold.
	Message string `json:"message"`
	// remedy describes how to remove the annotation.
	Remedy string `json:"remedy"`
}

// DeletionBlock is something that a deletion waits for. Exactly one of finalizer, dependent,
// owner, content and hidden is set.
type DeletionBlock struct {
	// finalizer is a finalizer of the object, which the component that added it has to remove.
	// +optional
	Finalizer string `json:"finalizer,omitempty"`
	// dependent is a dependent with blockOwnerDeletion. The object is deleted in the foreground
	// and waits for it.
	// +optional
	Dependent *ObjectReference `json:"dependent,omitempty"`
	// owner is an owner of the object. The object is deleted only after it.
	// +optional
	Owner *ObjectReference `json:"owner,omitempty"`
	// content is an object in the Namespace, or a custom resource of the
	// CustomResourceDefinition, that is being deleted.
	// +optional
	Content *ObjectReference `json:"content,omitempty"`
	// hidden is true if the deletion waits for an object that the caller may not read.
	// +optional
	Hidden bool `json:"hidden,omitempty"`
}
