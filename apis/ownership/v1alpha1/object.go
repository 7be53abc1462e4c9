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
	// apiVersion is the object's group and version. Of the group the version that is served
	// and preferred is answered.
	APIVersion string `json:"apiVersion"`
	// kind is the object's kind.
	Kind string `json:"kind"`
	// namespace is the object's namespace. It is empty for objects that are in none.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the object's name.
	Name string `json:"name"`
	// uid is the object's UID. In a question it may be left out; where it is given, an object
	// with another UID is not meant.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Compare orders objects by kind, group, namespace and name. It is the order of siblings in all
// answers about ownership. The result is negative if r comes before other, and positive if after.
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

// Standing says how an owner reference stands.
type Standing string

const (
	// StandingSolid: the owner exists.
	StandingSolid Standing = "Solid"
	// StandingWaiting: the owner exists, is being deleted, and waits for its dependents to go
	// first.
	StandingWaiting Standing = "Waiting"
	// StandingDangling: the owner does not exist.
	StandingDangling Standing = "Dangling"
	// StandingUnresolved: it cannot be known whether the owner exists, as its kind is not
	// served, or an object without a namespace names an owner that has one. The object is not
	// collected.
	StandingUnresolved Standing = "Unresolved"
	// StandingPending: whether the owner exists has still to be found out.
	StandingPending Standing = "Pending"
	// StandingHidden: the caller may not read the owner.
	StandingHidden Standing = "Hidden"
)

// OwnerReference is an owner reference of an object, and how it stands.
type OwnerReference struct {
	metav1.OwnerReference `json:",inline"`
	// standing says whether the owner exists.
	Standing Standing `json:"standing"`
}

// Hold tells why an object has the annotation HoldAnnotation, and how to take it off.
type Hold struct {
	// undeletion is the object whose undeletion is not finished, as kubectl names it, or the UID
	// that it had. It is empty for a hold that was set by hand.
	// +optional
	Undeletion string `json:"undeletion,omitempty"`
	// message says why the object is on hold.
	Message string `json:"message"`
	// remedy says how to take it off.
	Remedy string `json:"remedy"`
}

// DeletionBlock is something that a deletion waits for. One of its fields is set.
type DeletionBlock struct {
	// finalizer is a finalizer of the object. Whoever put it there has to take it away.
	// +optional
	Finalizer string `json:"finalizer,omitempty"`
	// dependent refers to the object as its owner with blockOwnerDeletion, and has to go first,
	// since the object is deleted in the foreground.
	// +optional
	Dependent *ObjectReference `json:"dependent,omitempty"`
	// owner has to go before the object does.
	// +optional
	Owner *ObjectReference `json:"owner,omitempty"`
	// content is in the object, as objects are in a namespace, and has to go first.
	// +optional
	Content *ObjectReference `json:"content,omitempty"`
	// hidden is true for an object that the caller may not read.
	// +optional
	Hidden bool `json:"hidden,omitempty"`
}
