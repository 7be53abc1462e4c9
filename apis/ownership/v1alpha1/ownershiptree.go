// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// OwnershipTree shows the direct and indirect owners and dependents of an object.
type OwnershipTree struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is not used and may be omitted.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the object.
	Spec OwnershipTreeSpec `json:"spec"`
	// status is the tree. The server fills it in.
	// +optional
	Status OwnershipTreeStatus `json:"status,omitempty"`
}

// OwnershipTreeSpec names the object whose tree is shown.
type OwnershipTreeSpec struct {
	// object is the object whose owners and dependents are shown.
	Object ObjectReference `json:"object"`
	// depth limits the levels of dependents. Without it, all levels are shown.
	// +optional
	Depth *int32 `json:"depth,omitempty"`
}

// Readiness describes the progress of an object towards the state that its spec asks for.
type Readiness string

const (
	// ReadinessReady: the object has reached it.
	ReadinessReady Readiness = "Ready"
	// ReadinessInProgress: the object's controller is working on it.
	ReadinessInProgress Readiness = "InProgress"
	// ReadinessFailed: the object will not reach it without intervention.
	ReadinessFailed Readiness = "Failed"
	// ReadinessTerminating: the object is being deleted.
	ReadinessTerminating Readiness = "Terminating"
	// ReadinessUnknown: the object's status does not say.
	ReadinessUnknown Readiness = "Unknown"
)

// TreeObject is an object of a tree. Its owners give its place in the tree.
type TreeObject struct {
	ObjectReference `json:",inline"`
	// creationTimestamp is when the object was created.
	// +optional
	CreationTimestamp metav1.Time `json:"creationTimestamp,omitempty"`
	// deletionTimestamp is when the object's deletion was requested, or when its grace period
	// ends.
	// +optional
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
	// owners are the object's owner references, with their standing.
	// +optional
	// +listType=atomic
	Owners []OwnerReference `json:"owners,omitempty"`
	// finalizers are the object's finalizers.
	// +optional
	// +listType=set
	Finalizers []string `json:"finalizers,omitempty"`
	// readiness describes the progress of the object towards the state that its spec asks for.
	Readiness Readiness `json:"readiness"`
	// message explains the readiness, for example "2 of 3 replicas are available".
	// +optional
	Message string `json:"message,omitempty"`
	// clusterPart says what an object of Cluster API is to its Cluster.
	// +optional
	ClusterPart *ClusterPart `json:"clusterPart,omitempty"`
	// hold is set if the annotation ownership.kindred.dev/hold pauses controllers for the object.
	// +optional
	Hold *Hold `json:"hold,omitempty"`
	// waitsFor lists what the object's deletion waits for, if it is being deleted.
	// +optional
	// +listType=atomic
	WaitsFor []DeletionBlock `json:"waitsFor,omitempty"`
}

// ClusterRole is the role of an object in a Cluster of Cluster API.
type ClusterRole string

const (
	// RoleInfrastructure: what all machines share.
	RoleInfrastructure ClusterRole = "Infrastructure"
	// RoleControlPlane: the control plane or one of its machines.
	RoleControlPlane ClusterRole = "ControlPlane"
	// RoleWorkers: a set of other machines, or one of these.
	RoleWorkers ClusterRole = "Workers"
)

// ClusterPart is what an object of Cluster API is to its Cluster.
type ClusterPart struct {
	// role is the object's role in the Cluster. It is empty for the Cluster itself, and for what belongs to one machine.
	// +optional
	Role ClusterRole `json:"role,omitempty"`
	// version is the version of Kubernetes that the object's machines have, or get.
	// +optional
	Version string `json:"version,omitempty"`
	// node is the name of a Machine's Node in the workload cluster.
	// +optional
	Node string `json:"node,omitempty"`
	// replicas is the number of machines that the object asks for.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of them that are ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
	// upToDateReplicas is the number of them that are as the object asks for.
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`
	// conditions lists the conditions that say that something is not as it should be, or under way.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OwnershipTreeStatus is the tree.
type OwnershipTreeStatus struct {
	// object is the full reference to the object of the spec.
	Object ObjectReference `json:"object,omitempty"`
	// owners lists the direct and indirect owners of the object, the nearest first.
	// +optional
	// +listType=atomic
	Owners []TreeObject `json:"owners,omitempty"`
	// objects lists the object itself and its direct and indirect dependents, the nearest first.
	// +optional
	// +listType=atomic
	Objects []TreeObject `json:"objects,omitempty"`
	// hidden is the number of further objects of the tree that the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// warnings qualify the tree.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}
