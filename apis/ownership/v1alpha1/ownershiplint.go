// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// OwnershipLint finds missing and wrong owner references, and describes their consequences.
type OwnershipLint struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is not used and may be omitted.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects the objects and rules to check.
	// +optional
	Spec OwnershipLintSpec `json:"spec,omitempty"`
	// status lists the findings. The server fills it in.
	// +optional
	Status OwnershipLintStatus `json:"status,omitempty"`
}

// OwnershipLintSpec selects the objects and rules to check. An empty spec selects all objects
// that the caller may read.
type OwnershipLintSpec struct {
	// namespace restricts the check to the objects in one namespace.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// object restricts the check to one object and its direct and indirect dependents, including
	// those that lack the reference. It must not be set together with namespace.
	// +optional
	Object *ObjectReference `json:"object,omitempty"`
	// rules restricts the check to the named rules.
	// +optional
	// +listType=set
	Rules []LintRule `json:"rules,omitempty"`
	// profile restricts the check to the objects of a project, and compares their owners with the table that the project documents.
	// What the table allows is no finding, and what the project's controllers mend is not repaired.
	// +optional
	Profile LintProfile `json:"profile,omitempty"`
}

// LintSeverity is the severity of a finding.
type LintSeverity string

const (
	// SeverityError: garbage collection does something other than the reference asks for, or
	// does harm.
	SeverityError LintSeverity = "Error"
	// SeverityWarning: garbage collection may do so in the future.
	SeverityWarning LintSeverity = "Warning"
	// SeverityInfo: garbage collection works as the reference asks for, perhaps not as intended.
	SeverityInfo LintSeverity = "Info"
)

// LintFinding is an object that violates a rule.
type LintFinding struct {
	// object is the object.
	Object ObjectReference `json:"object"`
	// rule is the violated rule.
	Rule LintRule `json:"rule"`
	// severity is the severity of the finding.
	Severity LintSeverity `json:"severity"`
	// message describes the fault.
	Message string `json:"message"`
	// consequence describes the effect of the fault.
	Consequence string `json:"consequence"`
	// remedy describes how to fix it.
	Remedy string `json:"remedy"`
	// fix is a safe change that fixes it, if there is one. An OwnershipRepair applies it.
	// +optional
	Fix *LintFix `json:"fix,omitempty"`
	// mendedBy names who corrects the fault without a repair, as "the controllers of Cluster API". It is set only with a profile.
	// +optional
	MendedBy string `json:"mendedBy,omitempty"`
}

// Unfixed says why a finding without a fix is not repaired.
func (f *LintFinding) Unfixed() string {
	if f.MendedBy != "" {
		return "left to " + f.MendedBy
	}
	return "no change is safe; decide by hand"
}

// LintFix is a safe change of an object's owner references.
type LintFix struct {
	// description describes the change.
	Description string `json:"description"`
	// resourceVersion is the resourceVersion of the object that the change was computed for. The
	// change must not be applied to any other.
	ResourceVersion string `json:"resourceVersion"`
	// ownerReferences lists all references of the object after the change.
	// +optional
	// +listType=atomic
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
}

// OwnershipLintStatus lists the findings.
type OwnershipLintStatus struct {
	// checked is the number of objects that were checked. Objects that are being deleted are not
	// checked.
	Checked int32 `json:"checked"`
	// findings lists the violations, sorted by object.
	// +optional
	// +listType=atomic
	Findings []LintFinding `json:"findings,omitempty"`
	// hidden is the number of further objects that the caller may not read. They were not
	// checked and did not affect the findings.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// warnings qualify the findings, for example if not all objects of the cluster are known.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// OwnershipRepair applies the fixes that an OwnershipLint finds. It acts as the caller, with the
// caller's permissions, and skips objects that changed since their fix was computed.
type OwnershipRepair struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is not used and may be omitted.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects the objects and rules to repair.
	// +optional
	Spec OwnershipRepairSpec `json:"spec,omitempty"`
	// status lists the results. The server fills it in.
	// +optional
	Status OwnershipRepairStatus `json:"status,omitempty"`
}

// OwnershipRepairSpec selects the objects and rules to repair. An empty spec selects all objects
// that the caller may read.
type OwnershipRepairSpec struct {
	// The fields of OwnershipLintSpec select the objects and rules.
	OwnershipLintSpec `json:",inline"`
	// dryRun sends every change through admission without persisting it.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// preconditions restricts the repair to objects in the given states, usually those of the
	// fixes of an earlier OwnershipLint. Objects that have changed since are skipped. Without
	// preconditions, objects are repaired in their current state.
	// +optional
	// +listType=map
	// +listMapKey=uid
	Preconditions []RepairPrecondition `json:"preconditions,omitempty"`
}

// RepairPrecondition names an object in one state.
type RepairPrecondition struct {
	// uid is the object's UID.
	UID types.UID `json:"uid"`
	// resourceVersion is the object's resourceVersion.
	ResourceVersion string `json:"resourceVersion"`
}

// RepairOutcome is what a repair did about a finding.
type RepairOutcome string

const (
	// RepairApplied: the fix was applied.
	RepairApplied RepairOutcome = "Applied"
	// RepairWouldApply: the fix passed admission in a dry run.
	RepairWouldApply RepairOutcome = "WouldApply"
	// RepairSkipped: the finding was not fixed; reason explains why.
	RepairSkipped RepairOutcome = "Skipped"
)

// RepairResult is a finding and what the repair did about it.
type RepairResult struct {
	LintFinding `json:",inline"`
	// outcome is what the repair did.
	Outcome RepairOutcome `json:"outcome"`
	// reason explains why the finding was skipped.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// OwnershipRepairStatus lists the results of a repair.
type OwnershipRepairStatus struct {
	// checked is the number of objects that were checked.
	Checked int32 `json:"checked"`
	// results lists all findings, each with its outcome.
	// +optional
	// +listType=atomic
	Results []RepairResult `json:"results,omitempty"`
	// applied is the number of findings that were fixed, or would be in a dry run.
	Applied int32 `json:"applied"`
	// skipped is the number of findings that were not fixed.
	Skipped int32 `json:"skipped"`
	// hidden is the number of further objects that the caller may not read.
	// +optional
	Hidden int32 `json:"hidden,omitempty"`
	// warnings qualify the results.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}
