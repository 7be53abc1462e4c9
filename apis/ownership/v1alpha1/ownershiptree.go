// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// OwnershipTree tells who owns an object, and what it owns, directly or not.
type OwnershipTree struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has nothing to say about a tree, and may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says of which object.
	Spec OwnershipTreeSpec `json:"spec"`
	// status is the answer.
	// +optional
	Status OwnershipTreeStatus `json:"status,omitempty"`
}

// OwnershipTreeSpec says which tree is asked for.
type OwnershipTreeSpec struct {
	// object is the object in the middle.
	Object ObjectReference `json:"object"`
	// depth is how many levels of dependents are told; without it all.
	// +optional
	Depth *int32 `json:"depth,omitempty"`
}

// Readiness is how far an object is on its way to what its spec asks for.
type Readiness string

const (
	// ReadinessReady: it is there.
	ReadinessReady Readiness = "Ready"
	// ReadinessInProgress: its controller works on it.
	ReadinessInProgress Readiness = "InProgress"
	// ReadinessFailed: it will not get there by itself.
	ReadinessFailed Readiness = "Failed"
	// ReadinessTerminating: it is being deleted.
	ReadinessTerminating Readiness = "Terminating"
	// ReadinessUnknown: its status does not tell.
	ReadinessUnknown Readiness = "Unknown"
)

// TreeObject is an object of a tree. Who is above whom is told by the owners.
type TreeObject struct {
	ObjectReference `json:",inline"`
	// creationTimestamp is when the object was created.
	// +optional
	CreationTimestamp metav1.Time `json:"creationTimestamp,omitempty"`
	// deletionTimestamp is when its deletion was asked for, or when its grace period ends.
	// +optional
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
	// owners are its owner references, and how they stand.
	// +optional
	// +listType=atomic
	Owners []OwnerReference `json:"owners,omitempty"`
	// finalizers are its finalizers.
	// +optional
	// +listType=set
	Finalizers []string `json:"finalizers,omitempty"`
	// readiness says whether it is what its spec asks for.
	Readiness Readiness `json:"readiness"`
	// message says more about the readiness: 2 of 3 replicas are available.
	// +optional
	Message string `json:"message,omitempty"`
	// hold is set if controllers leave the object alone because of the annotation
	// ownership.kindred.dev/hold.
	// +optional
	Hold *Hold `json:"hold,omitempty"`
	// waitsFor is what the deletion of the object waits for, when it is being deleted.
	// +optional
	// +listType=atomic
	WaitsFor []DeletionBlock `json:"waitsFor,omitempty"`
}

// OwnershipTreeStatus is the tree.
type OwnershipTreeStatus struct {
	// object is the object in the middle, in full.
	Object ObjectReference `json:"object,omitempty"`
	// owners are the objects that own it, directly or not, the nearest first.
	// +optional
	// +listType=atomic
	Owners []TreeObject `json:"owners,omitempty"`
	// objects are the object itself and all that it owns, directly or not, the nearest first.
	// +optional
	// +listType=atomic
	Objects []TreeObject `json:"objects,omitempty"`
	// hidden is the number of further objects that belong to the tree, and that the caller may
	// not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// warnings say what else there is to know.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}
