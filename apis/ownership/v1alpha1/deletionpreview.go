// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DeletionPreview shows what the deletion of one or more objects would do, without deleting
// anything. It applies the garbage collector's own rules to the garbage collector's own graph.
type DeletionPreview struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is not used and may be omitted.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the deletion.
	Spec DeletionPreviewSpec `json:"spec"`
	// status is the outcome of the deletion. The server fills it in.
	// +optional
	Status DeletionPreviewStatus `json:"status,omitempty"`
}

// DeletionPreviewSpec describes a deletion.
type DeletionPreviewSpec struct {
	// target is the object to delete, or a selector for several. Exactly one of target and
	// targets must be set. The deletion of a Namespace includes the objects in it, and that of a
	// CustomResourceDefinition its custom resources.
	// +optional
	Target *DeletionTarget `json:"target,omitempty"`
	// targets are deleted together: a dependent is deleted if all its owners are deleted with
	// any of the targets. An object that several targets name is deleted once.
	// +optional
	// +listType=atomic
	Targets []DeletionTarget `json:"targets,omitempty"`
	// propagationPolicy decides what happens to dependents, as in DeleteOptions: Background,
	// Foreground or Orphan. If it is not set, the default of each target's kind applies, which is
	// Background except for Jobs and ReplicationControllers. (kubectl delete sets Background
	// unless --cascade is given.)
	// +optional
	PropagationPolicy *metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`
}

// DeletionTarget is one object, or the objects of one kind that a selector matches.
type DeletionTarget struct {
	// apiVersion is the group and version of the kind.
	APIVersion string `json:"apiVersion"`
	// kind is the kind of the object or objects.
	Kind string `json:"kind"`
	// namespace is the namespace of the object or objects. It is empty for cluster-scoped
	// kinds. With a selector, an empty namespace means all namespaces.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the name of one object. Exactly one of name and selector must be set.
	// +optional
	Name string `json:"name,omitempty"`
	// uid is a precondition, as in DeleteOptions. If no object has this name and UID, the
	// deletion would do nothing, and the preview leaves the target out, even if another object
	// now has the name.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// selector selects objects by label. An empty selector matches all objects of the kind.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// DeletionOutcome is what happens to an object.
type DeletionOutcome string

const (
	// OutcomeDeleted: the object is deleted, at once or when nothing in blockedBy is left.
	OutcomeDeleted DeletionOutcome = "Deleted"
	// OutcomeOrphaned: the object stays and loses its reference to a deleted owner.
	OutcomeOrphaned DeletionOutcome = "Orphaned"
	// OutcomeKept: an owner is deleted, and the object stays because of another owner.
	OutcomeKept DeletionOutcome = "Kept"
	// OutcomeBlocked: the object's deletion starts and never completes, because it waits for a
	// dependent that stays.
	OutcomeBlocked DeletionOutcome = "Blocked"
)

// PreviewedObject is what happens to one object.
type PreviewedObject struct {
	ObjectReference `json:",inline"`
	// outcome is what happens to the object.
	Outcome DeletionOutcome `json:"outcome"`
	// target is true for objects that the spec names or selects. All other objects are affected
	// because of them.
	// +optional
	Target bool `json:"target,omitempty"`
	// deleting is true if the object already has a deletionTimestamp.
	// +optional
	Deleting bool `json:"deleting,omitempty"`
	// owners are the object's current owner references.
	// +optional
	// +listType=atomic
	Owners []OwnerReference `json:"owners,omitempty"`
	// blockedBy lists what the object's deletion would have to wait for now.
	// +optional
	// +listType=atomic
	BlockedBy []DeletionBlock `json:"blockedBy,omitempty"`
	// keptBy lists the owner references that remain on an object that stays.
	// +optional
	// +listType=atomic
	KeptBy []OwnerReference `json:"keptBy,omitempty"`
	// volume is the PersistentVolume that a deleted PersistentVolumeClaim is bound to. It has no owner
	// reference to the claim; its reclaim policy decides whether it is deleted too.
	// +optional
	Volume *ClaimedVolume `json:"volume,omitempty"`
	// deletedWith is set for an object that a controller deletes when this other object, which does not own it, is deleted.
	// +optional
	DeletedWith *ObjectReference `json:"deletedWith,omitempty"`
}

// DeletionPreviewStatus shows what a deletion would do.
type DeletionPreviewStatus struct {
	// objects lists all affected objects, breadth first along owner references. The targets come
	// first, in the best order to delete them: namespaces and definitions before their content,
	// owners before their dependents.
	// +optional
	// +listType=atomic
	Objects []PreviewedObject `json:"objects,omitempty"`
	// hidden is the number of further affected objects that the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// deleted is the number of objects with the outcome Deleted. Like the other counts, it does
	// not include hidden objects.
	Deleted int32 `json:"deleted"`
	// orphaned is the number of objects with the outcome Orphaned.
	Orphaned int32 `json:"orphaned"`
	// kept is the number of objects with the outcome Kept.
	Kept int32 `json:"kept"`
	// blocked is the number of objects whose deletion has to wait for something or never
	// completes.
	Blocked int32 `json:"blocked"`
	// warnings qualify the preview: a controller may recreate an object, not all objects of the
	// cluster are known, or an outcome depends on which target is deleted first.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// ClaimedVolume is the PersistentVolume that a claim is bound to.
type ClaimedVolume struct {
	// name is the name of the PersistentVolume.
	Name string `json:"name"`
	// reclaimPolicy is Delete if the volume and its data are deleted after the claim, and Retain if they are
	// kept. It is empty if the caller may not read the volume.
	// +optional
	ReclaimPolicy corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
}
