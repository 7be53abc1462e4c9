// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Undeletion restores a deleted object and the objects that were deleted because of it, in their
// state just before the deletion. It writes as the caller, with the caller's permissions.
// Restored objects get new UIDs. Dependents that still exist get their owner reference back.
//
// An undeletion is refused as a whole, before it changes anything, or it is carried out: owners
// first, with controllers on hold until all objects are restored. If it takes longer than one
// request, its phase is Incomplete: create the same undeletion again to continue it. The same
// holds after an interruption.
type Undeletion struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is not used and may be omitted.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the object to restore.
	Spec UndeletionSpec `json:"spec"`
	// status is the progress of the undeletion. The server fills it in.
	// +optional
	Status UndeletionStatus `json:"status,omitempty"`
}

// UndeletionSpec names the object to restore.
type UndeletionSpec struct {
	// object is the root of the graph to restore: the last deleted object of that name, or the
	// deleted object with this UID.
	Object ObjectReference `json:"object"`
	// at is a time before the deletion. If it is set, the state at that time is restored instead
	// of the last state. The server knows times to the minute: the restored state may be up to a
	// minute older.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
	// dryRun checks every change, with admission where possible, and persists none.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// timeoutSeconds limits how long one request works on the undeletion, not counting the time
	// that it takes to read the graph. The minimum is four times that time; the maximum and
	// default is about 30 seconds. The next request continues the work.
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// UndeletionPhase is the progress of an undeletion.
type UndeletionPhase string

const (
	// UndeletionRefused: nothing was changed; problems say why.
	UndeletionRefused UndeletionPhase = "Refused"
	// UndeletionPlanned: the dry run succeeded. Nothing was changed.
	UndeletionPlanned UndeletionPhase = "Planned"
	// UndeletionIncomplete: some objects are not restored yet, and those that are, are on hold.
	// Solve the problems, if there are any, and create the undeletion again.
	UndeletionIncomplete UndeletionPhase = "Incomplete"
	// UndeletionComplete: all objects are restored, and none is on hold.
	UndeletionComplete UndeletionPhase = "Complete"
)

// UndeletionOutcome is what an undeletion does with an object.
type UndeletionOutcome string

const (
	// UndeletionRestored: the object is created again.
	UndeletionRestored UndeletionOutcome = "Restored"
	// UndeletionAdopted: the object still exists and gets its owner reference back.
	UndeletionAdopted UndeletionOutcome = "Adopted"
	// UndeletionUnchanged: the object still exists and needs no change.
	UndeletionUnchanged UndeletionOutcome = "Unchanged"
	// UndeletionTaken: another object now has the name. It stays and takes the place of the
	// deleted object.
	UndeletionTaken UndeletionOutcome = "Taken"
	// UndeletionLeft: the object is not restored; reason explains why.
	UndeletionLeft UndeletionOutcome = "Left"
	// UndeletionDenied: the API rejects the object, or the caller may not write it; problems say
	// why.
	UndeletionDenied UndeletionOutcome = "Denied"
	// UndeletionPending: the object is not restored yet.
	UndeletionPending UndeletionOutcome = "Pending"
)

// UndeletionResult is an object and its outcome.
type UndeletionResult struct {
	// object is the object, with its new UID once it exists.
	Object ObjectReference `json:"object"`
	// formerUID is the object's UID before the deletion.
	FormerUID types.UID `json:"formerUID"`
	// owners lists the former UIDs of the objects whose deletion caused this one's: its owners in
	// the graph, its namespace, or the definition of its kind.
	// +optional
	// +listType=atomic
	Owners []types.UID `json:"owners,omitempty"`
	// outcome is what the undeletion does with the object, or would do in a dry run.
	Outcome UndeletionOutcome `json:"outcome"`
	// reason explains the outcome where needed.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// UndeletionStatus is the progress of an undeletion.
type UndeletionStatus struct {
	// phase is the progress of the undeletion.
	Phase UndeletionPhase `json:"phase"`
	// deletion is the deletion that is undone.
	// +optional
	Deletion *ExplainedDeletion `json:"deletion,omitempty"`
	// resourceVersion is the revision of the store whose state is restored.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// results lists all objects of the graph, owners first.
	// +optional
	// +listType=atomic
	Results []UndeletionResult `json:"results,omitempty"`
	// restored is the number of objects with the outcome Restored.
	Restored int32 `json:"restored"`
	// adopted is the number of objects with the outcome Adopted.
	Adopted int32 `json:"adopted"`
	// left is the number of objects with the outcome Left or Taken.
	Left int32 `json:"left"`
	// pending is the number of objects with the outcome Pending.
	Pending int32 `json:"pending"`
	// denied is the number of objects with the outcome Denied.
	// +optional
	Denied int32 `json:"denied,omitempty"`
	// held is the number of objects that exist and are still on hold.
	// +optional
	Held int32 `json:"held,omitempty"`
	// problems explain why the undeletion is refused, or what must be solved before it can continue.
	// +optional
	// +listType=atomic
	Problems []string `json:"problems,omitempty"`
	// waiting describes what an Incomplete undeletion without problems waits for. If it is empty, the
	// undeletion waits only for the next request.
	// +optional
	Waiting string `json:"waiting,omitempty"`
	// warnings are further remarks.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DeletionHistory lists deletions that can be undone. It contains only deletions that a client
// requested, not those that followed from them, and only of objects that the caller may read
// and whose name no other object has taken.
type DeletionHistory struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is not used and may be omitted.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects deletions.
	// +optional
	Spec DeletionHistorySpec `json:"spec,omitempty"`
	// status lists the deletions. The server fills it in.
	// +optional
	Status DeletionHistoryStatus `json:"status,omitempty"`
}

// DeletionHistorySpec selects deletions. An empty spec selects the deletions of all objects that
// the caller may read.
type DeletionHistorySpec struct {
	// namespace restricts the history to objects in one namespace.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// object restricts the history to objects of one kind, if only apiVersion and kind are set,
	// or to objects of that kind and name.
	// +optional
	Object *ObjectReference `json:"object,omitempty"`
}

// DeletionHistoryStatus lists deletions.
type DeletionHistoryStatus struct {
	// since is the time, to the minute, since which deletions can be undone.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// deletions lists the deletions, the latest first.
	// +optional
	// +listType=atomic
	Deletions []ExplainedDeletion `json:"deletions,omitempty"`
	// hidden is the number of further objects that the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
}
