// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Verb is what an Action does.
type Verb string

const (
	// Delete the object with the given policy.
	Delete Verb = "Delete"
	// RemoveFinalizer sets metadata.finalizers to Finalizers.
	RemoveFinalizer Verb = "RemoveFinalizer"
	// DropOwners sets metadata.ownerReferences to OwnerReferences.
	DropOwners Verb = "DropOwners"
	// Lookup gets the object live, to learn whether it exists with this UID.
	Lookup Verb = "Lookup"
	// Report records a warning event about the object, with Reason and Message.
	Report Verb = "Report"
)

// ReasonInvalidNamespace is upstream's reason of the event about an owner reference to
// another namespace, or from a cluster-scoped object to a namespaced one.
const ReasonInvalidNamespace = "OwnerRefInvalidNamespace"

// Action is one operation on one object.
type Action struct {
	Verb Verb

	// Resource, Kind, Namespace and Name identify the object.
	Resource  schema.GroupVersionResource
	Kind      string
	Namespace string
	Name      string

	// UID and ResourceVersion are the preconditions of a write: the state that it
	// was decided from. For a Lookup, UID is the expected UID.
	UID             types.UID
	ResourceVersion string

	// Policy is the propagation policy of a Delete.
	Policy metav1.DeletionPropagation
	// Finalizers are the ones that remain after RemoveFinalizer.
	Finalizers []string
	// OwnerReferences are the ones that remain after DropOwners.
	OwnerReferences []metav1.OwnerReference
	// Because are the references that led to the decision: for a Delete, to owners
	// that are absent or wait for the object; for DropOwners, the removed ones.
	Because []metav1.OwnerReference
	// InOtherNamespace are the UIDs of the owners in Because that are in another namespace.
	// It is set for a Delete.
	InOtherNamespace []types.UID

	// Reason and Message are the text of a Report's event.
	Reason, Message string

	node       *node
	unverified *unverifiedOwner
}

// Result is the result of an Action.
type Result string

const (
	// Applied: the write succeeded.
	Applied Result = "Applied"
	// Found: the object exists, as Outcome.Object shows it. It is the result of a Lookup,
	// and of a write whose preconditions failed.
	Found Result = "Found"
	// Absent: no object has this name and UID.
	Absent Result = "Absent"
	// Failed: the result is unknown. The node backs off until [Graph.Wake].
	Failed Result = "Failed"
)

// Outcome is the result of an Action, with the object if the API returned it.
type Outcome struct {
	Result Result
	// Object is the object that the API returned, or nil.
	Object metav1.Object
}
