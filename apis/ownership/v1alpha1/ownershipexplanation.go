// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// OwnershipExplanation tells why an object is there, why it is not gone yet, or why it is gone.
type OwnershipExplanation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has nothing to say about an explanation, and may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says of which object.
	Spec OwnershipExplanationSpec `json:"spec"`
	// status is the answer.
	// +optional
	Status OwnershipExplanationStatus `json:"status,omitempty"`
}

// OwnershipExplanationSpec says what is to be explained.
type OwnershipExplanationSpec struct {
	// object is the object that there is, or the last one of that name that there was. With a
	// UID it is that one alone.
	Object ObjectReference `json:"object"`
	// type is a name of the kind as kubectl takes it: "tools", "tool", "Tool" or a short name,
	// alone or with the group as in "tools.example.com". It stands for apiVersion and kind of the
	// object, which are left out then. It is for a kind whose definition was deleted; a namespace
	// is ignored if the kind had none.
	// +optional
	Type string `json:"type,omitempty"`
}

// ObjectState is whether an object is there.
type ObjectState string

const (
	// StateLiving: the object is there.
	StateLiving ObjectState = "Living"
	// StateTerminating: the object is being deleted.
	StateTerminating ObjectState = "Terminating"
	// StateGone: the object is not there any more.
	StateGone ObjectState = "Gone"
)

// AgentKind is what kind of client it was that had an object deleted.
type AgentKind string

const (
	// AgentUser is a person, or whoever else is no part of the cluster.
	AgentUser AgentKind = "User"
	// AgentServiceAccount is a program with a service account.
	AgentServiceAccount AgentKind = "ServiceAccount"
	// AgentNode is the agent of a node.
	AgentNode AgentKind = "Node"
	// AgentController is one of the cluster's own controllers, or the scheduler.
	AgentController AgentKind = "Controller"
	// AgentGarbageCollector is the garbage collector: the owners of the object were gone.
	AgentGarbageCollector AgentKind = "GarbageCollector"
	// AgentServer is the API server itself.
	AgentServer AgentKind = "Server"
	// AgentUnknown: no record says who it was.
	AgentUnknown AgentKind = "Unknown"
)

// DeletionAgent is who had an object deleted.
type DeletionAgent struct {
	// kind is what kind of client it was.
	Kind AgentKind `json:"kind"`
	// user is the name by which it was authenticated.
	// +optional
	User string `json:"user,omitempty"`
	// userAgent is the program that it said to be, with its version.
	// +optional
	UserAgent string `json:"userAgent,omitempty"`
	// auditID is the ID of its request in the audit log.
	// +optional
	AuditID types.UID `json:"auditID,omitempty"`
}

// ExplainedDeletion tells of the deletion of one object.
type ExplainedDeletion struct {
	// object is the object that was deleted.
	Object ObjectReference `json:"object"`
	// time is when the deletion was asked for. Without a record it is known to a minute, or
	// not at all.
	// +optional
	Time *metav1.MicroTime `json:"time,omitempty"`
	// by is who asked for it.
	By DeletionAgent `json:"by"`
	// propagationPolicy is what happened to the dependents: Background, Foreground or Orphan.
	// +optional
	PropagationPolicy metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`
	// because are the objects whose deletion led to this one: its owners, the namespace that
	// it was in, or the definition of its kind. The owners of an object that the garbage
	// collector deleted were gone; those of an object that a controller deleted were being
	// deleted.
	// +optional
	// +listType=atomic
	Because []ObjectReference `json:"because,omitempty"`
	// hidden is the number of further owners that led to it, and that the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// invalidOwners are owners in another namespace. Such a reference is never followed, and
	// keeps nothing.
	// +optional
	// +listType=atomic
	InvalidOwners []ObjectReference `json:"invalidOwners,omitempty"`
	// resourceVersion is that of the last state of the object before the deletion.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// DeletionWait is something that a deletion waits for, and who usually sees to it.
type DeletionWait struct {
	DeletionBlock `json:",inline"`
	// message says who usually takes the finalizer away, and when.
	// +optional
	Message string `json:"message,omitempty"`
}

// OwnershipExplanationStatus is the explanation.
type OwnershipExplanationStatus struct {
	// object is the object that is explained, in full.
	Object ObjectReference `json:"object,omitempty"`
	// state is whether it is there.
	State ObjectState `json:"state,omitempty"`
	// owners are the owner references of an object that is there, and how they stand. As
	// long as one is solid, they keep the object from being collected. An object without
	// any stays until somebody deletes it.
	// +optional
	// +listType=atomic
	Owners []OwnerReference `json:"owners,omitempty"`
	// waitsFor is what the deletion of the object waits for.
	// +optional
	// +listType=atomic
	WaitsFor []DeletionWait `json:"waitsFor,omitempty"`
	// deletions tell how the deletion came about: first that of the object, then those of the
	// objects that it was deleted because of, and so on.
	// +optional
	// +listType=atomic
	Deletions []ExplainedDeletion `json:"deletions,omitempty"`
	// earlier are the deletions of other objects that had the name before, the latest first.
	// +optional
	// +listType=atomic
	Earlier []ExplainedDeletion `json:"earlier,omitempty"`
	// hidden is the number of further objects that have to do with it, and that the caller
	// may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// hold is set if controllers leave the object alone because of the annotation
	// ownership.kindred.dev/hold.
	// +optional
	Hold *Hold `json:"hold,omitempty"`
	// messages say what else there is to know.
	// +optional
	// +listType=atomic
	Messages []string `json:"messages,omitempty"`
}
