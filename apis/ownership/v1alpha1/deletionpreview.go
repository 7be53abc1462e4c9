// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DeletionPreview tells what a deletion of one or more objects would do, and does nothing. It is
// decided by the same rules as garbage collection, from the same observations.
type DeletionPreview struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has nothing to say about a preview, and may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what would be deleted, and how.
	Spec DeletionPreviewSpec `json:"spec"`
	// status is the answer.
	// +optional
	Status DeletionPreviewStatus `json:"status,omitempty"`
}

// DeletionPreviewSpec says what would be deleted, and how.
type DeletionPreviewSpec struct {
	// target is what would be deleted, if it is one object or the objects of one selector. Either
	// target or targets is given. The deletion of a Namespace deletes all that is in it, that of
	// a CustomResourceDefinition all its custom resources.
	// +optional
	Target *DeletionTarget `json:"target,omitempty"`
	// targets are what would be deleted together: an object goes if all its owners are among
	// what goes with any of the targets. An object that several targets name is deleted once.
	// +optional
	// +listType=atomic
	Targets []DeletionTarget `json:"targets,omitempty"`
	// propagationPolicy says what happens to dependents, as in DeleteOptions: Background,
	// Foreground or Orphan. Without it the default of each target's kind applies, which is
	// Background for all but Jobs and ReplicationControllers. (kubectl asks for Background
	// unless it is told otherwise.)
	// +optional
	PropagationPolicy *metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`
}

// DeletionTarget is one object, or those of a kind that a selector chooses.
type DeletionTarget struct {
	// apiVersion is the group and version of the kind.
	APIVersion string `json:"apiVersion"`
	// kind is the kind of the object, or objects.
	Kind string `json:"kind"`
	// namespace is where they are. It is empty for kinds that are in none; with a selector an
	// empty namespace stands for all.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the name of one object. Either name or selector is given.
	// +optional
	Name string `json:"name,omitempty"`
	// uid is the UID of the object that is meant, as in the preconditions of DeleteOptions. If
	// that object is gone, the target is left out of the answer: its deletion would do nothing,
	// also where another object has taken the name.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// selector chooses objects by their labels. An empty selector chooses all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// DeletionOutcome is what becomes of an object.
type DeletionOutcome string

const (
	// OutcomeDeleted: the object goes, at once or when what blocks it does not any more.
	OutcomeDeleted DeletionOutcome = "Deleted"
	// OutcomeOrphaned: the object stays, without its reference to an owner that goes.
	OutcomeOrphaned DeletionOutcome = "Orphaned"
	// OutcomeKept: the object stays although an owner goes, because of another owner.
	OutcomeKept DeletionOutcome = "Kept"
	// OutcomeBlocked: the object's deletion begins and does not end, as it waits for a
	// dependent that stays.
	OutcomeBlocked DeletionOutcome = "Blocked"
)

// PreviewedObject is what becomes of one object.
type PreviewedObject struct {
	ObjectReference `json:",inline"`
	// outcome is what becomes of the object.
	Outcome DeletionOutcome `json:"outcome"`
	// target is true for what the deletion itself names. Everything else follows from it.
	// +optional
	Target bool `json:"target,omitempty"`
	// deleting is true for an object that is being deleted already.
	// +optional
	Deleting bool `json:"deleting,omitempty"`
	// owners are the object's owner references as they are now.
	// +optional
	// +listType=atomic
	Owners []OwnerReference `json:"owners,omitempty"`
	// blockedBy is what the deletion waits for, as things stand now.
	// +optional
	// +listType=atomic
	BlockedBy []DeletionBlock `json:"blockedBy,omitempty"`
	// keptBy are the owner references that the object still has afterwards, when it stays.
	// +optional
	// +listType=atomic
	KeptBy []OwnerReference `json:"keptBy,omitempty"`
}

// DeletionPreviewStatus tells what a deletion would do.
type DeletionPreviewStatus struct {
	// objects are all objects that something happens to, in the order in which they are
	// reached from the targets by way of their owner references. The targets come first, in the
	// order in which they are best deleted: namespaces and definitions before what is in them,
	// owners before their dependents.
	// +optional
	// +listType=atomic
	Objects []PreviewedObject `json:"objects,omitempty"`
	// hidden is the number of further objects that something happens to, and that the caller
	// may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// deleted, orphaned, kept and blocked count the objects by their outcome. Those that are
	// hidden do not count.
	Deleted int32 `json:"deleted"`
	// orphaned is the number of objects with the outcome Orphaned.
	Orphaned int32 `json:"orphaned"`
	// kept is the number of objects with the outcome Kept.
	Kept int32 `json:"kept"`
	// blocked is the number of objects whose deletion has to wait for something, or never ends.
	Blocked int32 `json:"blocked"`
	// warnings say what else there is to know: that a controller may create an object again,
	// that not all objects of the cluster are known, or that what becomes of an object depends on
	// which of the targets is deleted first.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}
