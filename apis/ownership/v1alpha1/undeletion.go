// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Undeletion brings a deleted object back, with all that went because of it, as they were
// just before. Everything is written as the caller, who needs to be allowed to, and comes to
// have a new UID. Objects that are still there are given their owner back.
//
// An undeletion is refused as a whole, before anything is changed, or it is carried out: owners
// first, on hold until everything is there. What takes longer than a request may is Incomplete:
// the same undeletion, created again, goes on with it. So does one that was interrupted.
type Undeletion struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has nothing to say about an undeletion, and may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is to be brought back.
	Spec UndeletionSpec `json:"spec"`
	// status is what was done.
	// +optional
	Status UndeletionStatus `json:"status,omitempty"`
}

// UndeletionSpec says what is to be brought back.
type UndeletionSpec struct {
	// object is the deleted object: the last one of that name, or the one with this UID.
	Object ObjectReference `json:"object"`
	// at is a time before the deletion, whose state is to be brought back instead of the last
	// one. It is known to a minute: the state may be that of up to a minute before.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
	// dryRun has every change looked at, and admitted as far as it can be, and none made.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// timeoutSeconds is how long one request works on the undeletion, without what it takes to
	// read the graph; at least four times as long as that, and never longer than about half a
	// minute, which is the default. What is not done by then is done by the next request.
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// UndeletionPhase is how far an undeletion has come.
type UndeletionPhase string

const (
	// UndeletionRefused: problems say why. Nothing was changed.
	UndeletionRefused UndeletionPhase = "Refused"
	// UndeletionPlanned: nothing was changed, as it was a dry run. It would be carried out.
	UndeletionPlanned UndeletionPhase = "Planned"
	// UndeletionIncomplete: not everything is there yet, and what is, is on hold. Create the
	// undeletion again, once the problems are solved if there are any.
	UndeletionIncomplete UndeletionPhase = "Incomplete"
	// UndeletionComplete: everything is there, and nothing is on hold.
	UndeletionComplete UndeletionPhase = "Complete"
)

// UndeletionOutcome is what becomes of an object.
type UndeletionOutcome string

const (
	// UndeletionRestored: the object was created anew.
	UndeletionRestored UndeletionOutcome = "Restored"
	// UndeletionAdopted: the object was still there, and was given its owner back.
	UndeletionAdopted UndeletionOutcome = "Adopted"
	// UndeletionUnchanged: the object is still there, and nothing has to be done.
	UndeletionUnchanged UndeletionOutcome = "Unchanged"
	// UndeletionTaken: another object has come to have the name meanwhile. It stays, and has
	// the place of the deleted one.
	UndeletionTaken UndeletionOutcome = "Taken"
	// UndeletionLeft: the object is not brought back, for the reason that is given.
	UndeletionLeft UndeletionOutcome = "Left"
	// UndeletionDenied: the API refuses the object, or the caller may not write it. A problem
	// says more.
	UndeletionDenied UndeletionOutcome = "Denied"
	// UndeletionPending: the object is not there yet.
	UndeletionPending UndeletionOutcome = "Pending"
)

// UndeletionResult is an object, and what becomes of it.
type UndeletionResult struct {
	// object is the object, with its UID from now on. It has none before it is there.
	Object ObjectReference `json:"object"`
	// formerUID is the UID that it had before the deletion.
	FormerUID types.UID `json:"formerUID"`
	// owners are the former UIDs of what it went because of: those of its owners that are in
	// the graph, or the namespace or definition that it belonged to.
	// +optional
	// +listType=atomic
	Owners []types.UID `json:"owners,omitempty"`
	// outcome is what becomes of it; in a dry run, what would.
	Outcome UndeletionOutcome `json:"outcome"`
	// reason says why, where that is not plain.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// UndeletionStatus is what was done.
type UndeletionStatus struct {
	// phase is how far it has come.
	Phase UndeletionPhase `json:"phase"`
	// deletion is the deletion that is undone.
	// +optional
	Deletion *ExplainedDeletion `json:"deletion,omitempty"`
	// resourceVersion is the revision whose state is brought back.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// results are all objects of the graph, owners first.
	// +optional
	// +listType=atomic
	Results []UndeletionResult `json:"results,omitempty"`
	// restored is the number of objects that were created anew, or would be.
	Restored int32 `json:"restored"`
	// adopted is the number of objects that were given their owner back, or would be.
	Adopted int32 `json:"adopted"`
	// left is the number of objects that are not brought back, or whose name is taken.
	Left int32 `json:"left"`
	// pending is the number of objects that are not there yet.
	Pending int32 `json:"pending"`
	// denied is the number of objects that the API refuses, or that the caller may not write.
	// +optional
	Denied int32 `json:"denied,omitempty"`
	// held is the number of objects that are there, and still on hold.
	// +optional
	Held int32 `json:"held,omitempty"`
	// problems say why it is refused, or what has to be solved before it can go on.
	// +optional
	// +listType=atomic
	Problems []string `json:"problems,omitempty"`
	// waiting is what an undeletion that is incomplete without problems waits for, if it is not
	// only for the next request.
	// +optional
	Waiting string `json:"waiting,omitempty"`
	// warnings say what else there is to know.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DeletionHistory lists the deletions that were asked for and can be undone: not those that
// followed from them, and only those of objects that the caller may read and whose name nothing
// else has by now.
type DeletionHistory struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has nothing to say about a history, and may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says of which objects.
	// +optional
	Spec DeletionHistorySpec `json:"spec,omitempty"`
	// status is the answer.
	// +optional
	Status DeletionHistoryStatus `json:"status,omitempty"`
}

// DeletionHistorySpec says of which objects. Left empty, it is all that the caller may read.
type DeletionHistorySpec struct {
	// namespace restricts the history to objects in a namespace.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// object restricts it to objects of a kind, if only apiVersion and kind are given, or of
	// a name.
	// +optional
	Object *ObjectReference `json:"object,omitempty"`
}

// DeletionHistoryStatus is the answer.
type DeletionHistoryStatus struct {
	// since is the time from which on deletions can be undone, to a minute.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// deletions are those that were asked for, the latest first.
	// +optional
	// +listType=atomic
	Deletions []ExplainedDeletion `json:"deletions,omitempty"`
	// hidden is the number of further objects that the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
}
