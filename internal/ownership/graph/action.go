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
	// Lookup gets the object live: does it exist, with this UID?
	Lookup Verb = "Lookup"
	// Report says about the object what Reason and Message say, as a warning event.
	Report Verb = "Report"
)

// ReasonInvalidNamespace is the reason of the event about an owner reference
// that points into another namespace, or from a cluster-scoped object into one.
const ReasonInvalidNamespace = "OwnerRefInvalidNamespace"

// Action is one thing to do to one object.
type Action struct {
	Verb Verb

	// Resource, Kind, Namespace and Name say where the object is.
	Resource  schema.GroupVersionResource
	Kind      string
	Namespace string
	Name      string

	// UID and ResourceVersion are the preconditions of a write: the state that
	// the decision was taken from. For Lookup, UID is the one asked for.
	UID             types.UID
	ResourceVersion string

	// Policy is the propagation policy of a Delete.
	Policy metav1.DeletionPropagation
	// Finalizers are those that remain after RemoveFinalizer.
	Finalizers []string
	// OwnerReferences are those that remain after DropOwners.
	OwnerReferences []metav1.OwnerReference
	// Because are the references that the decision rests on: of a Delete the
	// owners that are absent or wait for it, of DropOwners the ones dropped.
	Because []metav1.OwnerReference
	// Elsewhere are those of them that are in another namespace, of a Delete.
	Elsewhere []types.UID

	// Reason and Message are the text of a Report.
	Reason, Message string

	node  *node
	claim *claim
}

// Result says how an Action ended.
type Result string

const (
	// Applied: the write went through.
	Applied Result = "Applied"
	// Found: the object is there, as Outcome.Object shows it. It answers a
	// Lookup, and a write that failed its preconditions.
	Found Result = "Found"
	// Absent: no object has this name and this UID.
	Absent Result = "Absent"
	// Failed: nothing is known. The node rests until [Graph.Wake].
	Failed Result = "Failed"
)

// Outcome is what an Action led to.
type Outcome struct {
	Result Result
	// Object is the object as the API returned it, if it did.
	Object metav1.Object
}
