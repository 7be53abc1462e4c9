// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// OwnershipLint tells which owner references are missing or wrong, and what follows from it.
type OwnershipLint struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has nothing to say about a lint, and may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is checked.
	// +optional
	Spec OwnershipLintSpec `json:"spec,omitempty"`
	// status is the answer.
	// +optional
	Status OwnershipLintStatus `json:"status,omitempty"`
}

// OwnershipLintSpec says what is checked. Left empty, it is all that the caller may read.
type OwnershipLintSpec struct {
	// namespace restricts the check to the objects in one namespace.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// object restricts the check to one object and what it owns, directly or not, or ought to.
	// It is not given beside namespace.
	// +optional
	Object *ObjectReference `json:"object,omitempty"`
	// rules restricts the check to some rules.
	// +optional
	// +listType=set
	Rules []LintRule `json:"rules,omitempty"`
}

// LintSeverity says how bad a finding is.
type LintSeverity string

const (
	// SeverityError: garbage collection does not do what the reference asks for, or harm.
	SeverityError LintSeverity = "Error"
	// SeverityWarning: it will not, one day, or perhaps.
	SeverityWarning LintSeverity = "Warning"
	// SeverityInfo: it does, and somebody should know.
	SeverityInfo LintSeverity = "Info"
)

// LintFinding is an object that breaks a rule.
type LintFinding struct {
	// object is the object.
	Object ObjectReference `json:"object"`
	// rule is the rule that it breaks.
	Rule LintRule `json:"rule"`
	// severity is how bad that is.
	Severity LintSeverity `json:"severity"`
	// message says what is wrong.
	Message string `json:"message"`
	// consequence says what will happen because of it.
	Consequence string `json:"consequence"`
	// remedy says what to do about it.
	Remedy string `json:"remedy"`
	// fix is a change that does it, where there is a safe one. An OwnershipRepair makes it.
	// +optional
	Fix *LintFix `json:"fix,omitempty"`
}

// LintFix is a safe change of an object's owner references.
type LintFix struct {
	// description says what is changed.
	Description string `json:"description"`
	// resourceVersion is the state of the object that the change was made for. It is wrong for
	// any other.
	ResourceVersion string `json:"resourceVersion"`
	// ownerReferences are all the references that the object has after the change.
	// +optional
	// +listType=atomic
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
}

// OwnershipLintStatus is what was found.
type OwnershipLintStatus struct {
	// checked is the number of objects that were looked at. Those that are being deleted are
	// not among them.
	Checked int32 `json:"checked"`
	// findings are the objects that break a rule, sorted by object.
	// +optional
	// +listType=atomic
	Findings []LintFinding `json:"findings,omitempty"`
	// hidden is the number of further objects, which the caller may not read. They were not
	// checked, and nothing is concluded from them.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// warnings say what else there is to know: that not all objects of the cluster are known.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// OwnershipRepair makes the safe changes among those that an OwnershipLint asks for. All are
// made as the caller, who needs to be allowed to, and to objects that are as they were when
// the change was decided: others are skipped.
type OwnershipRepair struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has nothing to say about a repair, and may be left out.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is repaired.
	// +optional
	Spec OwnershipRepairSpec `json:"spec,omitempty"`
	// status is what was done.
	// +optional
	Status OwnershipRepairStatus `json:"status,omitempty"`
}

// OwnershipRepairSpec says what is repaired. Left empty, it is all that the caller may read.
type OwnershipRepairSpec struct {
	// What is repaired is chosen as what is checked.
	OwnershipLintSpec `json:",inline"`
	// dryRun has every change admitted and none made.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// preconditions restricts the repair to objects in a state that was seen before, in a
	// lint's fixes. An object that has changed since is skipped. Without any, objects are
	// repaired as they are found.
	// +optional
	// +listType=map
	// +listMapKey=uid
	Preconditions []RepairPrecondition `json:"preconditions,omitempty"`
}

// RepairPrecondition is an object in one state.
type RepairPrecondition struct {
	// uid is the object's UID.
	UID types.UID `json:"uid"`
	// resourceVersion is its resourceVersion.
	ResourceVersion string `json:"resourceVersion"`
}

// RepairOutcome is what became of a finding.
type RepairOutcome string

const (
	// RepairApplied: the change was made.
	RepairApplied RepairOutcome = "Applied"
	// RepairWouldApply: the change was not made, as it was a dry run. It would be admitted.
	RepairWouldApply RepairOutcome = "WouldApply"
	// RepairSkipped: the change was not made, for the reason that is given.
	RepairSkipped RepairOutcome = "Skipped"
)

// RepairResult is a finding, and what became of it.
type RepairResult struct {
	LintFinding `json:",inline"`
	// outcome is what became of the finding.
	Outcome RepairOutcome `json:"outcome"`
	// reason says why the change was not made.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// OwnershipRepairStatus is what was done.
type OwnershipRepairStatus struct {
	// checked is the number of objects that were looked at.
	Checked int32 `json:"checked"`
	// results are all findings, and what became of each.
	// +optional
	// +listType=atomic
	Results []RepairResult `json:"results,omitempty"`
	// applied is the number of findings that were repaired, or would be.
	Applied int32 `json:"applied"`
	// skipped is the number of findings that were not repaired.
	Skipped int32 `json:"skipped"`
	// hidden is the number of further objects, which the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// warnings say what else there is to know.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}
