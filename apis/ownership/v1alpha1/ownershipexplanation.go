// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// OwnershipExplanation explains why an object exists, why it is not deleted yet, or why it was
// deleted.
type OwnershipExplanation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is not used and may be omitted.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the object.
	Spec OwnershipExplanationSpec `json:"spec"`
	// status is the explanation. The server fills it in.
	// +optional
	Status OwnershipExplanationStatus `json:"status,omitempty"`
}

// OwnershipExplanationSpec names the object to explain.
type OwnershipExplanationSpec struct {
	// object is the object to explain. If it does not exist, the last deleted object of that
	// name is explained. With a UID, only the object with that UID matches.
	Object ObjectReference `json:"object"`
	// type is the resource type as kubectl takes it: "tools", "tool", "Tool" or a short name,
	// alone or with the group as in "tools.example.com". It replaces the object's apiVersion and
	// kind, which must be omitted. Use it for a kind whose definition was deleted. The object's
	// namespace is ignored if the kind was cluster-scoped.
	// +optional
	Type string `json:"type,omitempty"`
}

// ObjectState is the state of an object: it exists, is terminating, or was deleted.
type ObjectState string

const (
	// StateLiving: the object exists and is not being deleted.
	StateLiving ObjectState = "Living"
	// StateTerminating: the object is being deleted.
	StateTerminating ObjectState = "Terminating"
	// StateGone: the object was deleted.
	StateGone ObjectState = "Gone"
)

// AgentKind is the kind of client that deleted an object.
type AgentKind string

const (
	// AgentUser is a person or any other client from outside the cluster.
	AgentUser AgentKind = "User"
	// AgentServiceAccount is a client with a service account.
	AgentServiceAccount AgentKind = "ServiceAccount"
	// AgentNode is a node agent.
	AgentNode AgentKind = "Node"
	// AgentController is one of the cluster's own controllers or the scheduler.
	AgentController AgentKind = "Controller"
	// AgentGarbageCollector is the garbage collector: all owners of the object were absent.
	AgentGarbageCollector AgentKind = "GarbageCollector"
	// AgentServer is the API server itself.
	AgentServer AgentKind = "Server"
	// AgentUnknown: there is no record of the deletion.
	AgentUnknown AgentKind = "Unknown"
)

// DeletionAgent is the client that deleted an object.
type DeletionAgent struct {
	// kind is the kind of the client.
	Kind AgentKind `json:"kind"`
	// user is the authenticated user name.
	// +optional
	User string `json:"user,omitempty"`
	// userAgent is the client's User-Agent header, which names a program and its version.
	// +optional
	UserAgent string `json:"userAgent,omitempty"`
	// auditID is the ID of the request in the audit log.
	// +optional
	AuditID types.UID `json:"auditID,omitempty"`
}

// ExplainedDeletion describes the deletion of one object.
type ExplainedDeletion struct {
	// object is the deleted object.
	Object ObjectReference `json:"object"`
	// time is when the deletion was requested. Without a record of the deletion it is known to
	// the minute or not at all.
	// +optional
	Time *metav1.MicroTime `json:"time,omitempty"`
	// by is the client that requested it.
	By DeletionAgent `json:"by"`
	// propagationPolicy is the policy for dependents: Background, Foreground or Orphan.
	// +optional
	PropagationPolicy metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`
	// because lists the objects whose deletion caused this one: the object's owners, its
	// namespace, or the definition of its kind. If the garbage collector deleted the object, its
	// owners were absent; if a controller did, they were being deleted.
	// +optional
	// +listType=atomic
	Because []ObjectReference `json:"because,omitempty"`
	// hidden is the number of further owners that caused it and that the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// invalidOwners lists owners in another namespace. References to them are not followed and
	// do not keep an object.
	// +optional
	// +listType=atomic
	InvalidOwners []ObjectReference `json:"invalidOwners,omitempty"`
	// resourceVersion is the resourceVersion of the object's last state before the deletion.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// DeletionWait is something that a deletion waits for, and how it usually ends.
type DeletionWait struct {
	DeletionBlock `json:",inline"`
	// message names the component that usually removes the finalizer, and when.
	// +optional
	Message string `json:"message,omitempty"`
}

// OwnershipExplanationStatus is the explanation.
type OwnershipExplanationStatus struct {
	// object is the full reference to the explained object.
	Object ObjectReference `json:"object,omitempty"`
	// state is the state of the object: it exists, is terminating, or was deleted.
	State ObjectState `json:"state,omitempty"`
	// owners are the owner references of an object that exists, with their standing. The object
	// is not garbage collected as long as one of them is Solid. An object without owners stays
	// until a client deletes it.
	// +optional
	// +listType=atomic
	Owners []OwnerReference `json:"owners,omitempty"`
	// waitsFor lists what the deletion of the object waits for.
	// +optional
	// +listType=atomic
	WaitsFor []DeletionWait `json:"waitsFor,omitempty"`
	// deletions is the chain of deletions: first that of the object, then those of the objects
	// whose deletion caused it, and so on.
	// +optional
	// +listType=atomic
	Deletions []ExplainedDeletion `json:"deletions,omitempty"`
	// earlier lists the deletions of earlier objects with the same name, the latest first.
	// +optional
	// +listType=atomic
	Earlier []ExplainedDeletion `json:"earlier,omitempty"`
	// hidden is the number of further related objects that the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// hold is set if the annotation ownership.kindred.dev/hold pauses controllers for the object.
	// +optional
	Hold *Hold `json:"hold,omitempty"`
	// messages are further remarks.
	// +optional
	// +listType=atomic
	Messages []string `json:"messages,omitempty"`
}
