// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// LintRule is the name of a lint rule. The meaning of a name never changes.
type LintRule string

// The rules, in the order in which LintRules describes them.
const (
	RuleNoOwner              LintRule = "no-owner"
	RuleLostReference        LintRule = "lost-reference"
	RuleStaleVersion         LintRule = "stale-version"
	RuleUnservedVersion      LintRule = "unserved-version"
	RuleUnservedKind         LintRule = "unserved-kind"
	RuleTooManyOwners        LintRule = "too-many-owners"
	RuleTwoControllers       LintRule = "two-controllers"
	RuleDangling             LintRule = "dangling"
	RuleWrongUID             LintRule = "wrong-uid"
	RuleNeverExisted         LintRule = "never-existed"
	RuleCrossNamespace       LintRule = "cross-namespace"
	RuleClusterToNamespaced  LintRule = "cluster-to-namespaced"
	RuleCycle                LintRule = "cycle"
	RuleUnhonouredBlockOwner LintRule = "block-owner-deletion"
	RuleOnHold               LintRule = "on-hold"
	RuleUndocumentedOwners   LintRule = "undocumented-owners"
)

// LintRuleDescription describes a rule, for listings, documentation and reports.
// +k8s:openapi-gen=false
// +k8s:deepcopy-gen=false
type LintRuleDescription struct {
	Rule     LintRule     `json:"rule"`
	Severity LintSeverity `json:"severity"`
	// Summary describes what the rule finds.
	Summary string `json:"summary"`
	// Consequence describes the effect. A finding may be more specific.
	Consequence string `json:"consequence"`
	// Remedy describes how to fix it. A finding may be more specific.
	Remedy string `json:"remedy"`
	// Fix is the safe change that a repair makes, and its condition. It is empty for rules
	// without a safe change.
	Fix string `json:"fix,omitempty"`
}

// DescribeLintRule returns the description of a rule, and false if there is no such rule.
func DescribeLintRule(rule LintRule) (LintRuleDescription, bool) {
	i := slices.IndexFunc(rules, func(d LintRuleDescription) bool { return d.Rule == rule })
	if i < 0 {
		return LintRuleDescription{}, false
	}
	return rules[i], true
}

// LintRules returns the descriptions of all rules.
func LintRules() []LintRuleDescription { return slices.Clone(rules) }

var rules = []LintRuleDescription{{
	Rule: RuleNoOwner, Severity: SeverityWarning,
	Summary:     "The object has no owner, and most of its siblings have one.",
	Consequence: "It is not deleted with its siblings: it is left behind.",
	Remedy:      "Add the owner that its siblings have, or remove the label that they share.",
}, {
	Rule: RuleLostReference, Severity: SeverityWarning,
	Summary:     "A reference was removed although its owner exists, and no other reference replaced it.",
	Consequence: "The object is no longer deleted with that owner: it is left behind.",
	Remedy:      "Restore the reference, unless it was removed on purpose.",
	Fix:         "The reference is restored, unless the object has another controller by now.",
}, {
	Rule: RuleStaleVersion, Severity: SeverityWarning,
	Summary:     "A reference names an apiVersion that is served but not preferred.",
	Consequence: "When that version is no longer served, clients that look the owner up by it do not find it.",
	Remedy:      "Name the preferred version.",
	Fix:         "The reference names the preferred version.",
}, {
	Rule: RuleUnservedVersion, Severity: SeverityError,
	Summary:     "A reference names an apiVersion that is not served; the kind is served in another version.",
	Consequence: "Clients that look the owner up by it do not find it: controllers do not get the owner, and upstream's garbage collector never deletes the object. Kindred's garbage collector ignores the version.",
	Remedy:      "Name a served version.",
	Fix:         "The reference names the preferred version.",
}, {
	Rule: RuleUnservedKind, Severity: SeverityError,
	Summary:     "A reference names a kind that is not served in any version.",
	Consequence: "The object is not garbage collected, even if its other owners are deleted: it may be leaked.",
	Remedy:      "Install the kind's definition again, or remove the reference.",
}, {
	Rule: RuleTooManyOwners, Severity: SeverityInfo,
	Summary:     "The object has more than one owner.",
	Consequence: "It is deleted only when all of them are deleted.",
	Remedy:      "Keep only the owner that it cannot exist without. Several owners should be the exception.",
}, {
	Rule: RuleTwoControllers, Severity: SeverityError,
	Summary:     "More than one reference has controller: true. The API rejects this now; older data may have it.",
	Consequence: "Every update of the object is rejected, including the removal of finalizers, and controllers may fight over it.",
	Remedy:      "Keep controller: true only on the reference to the owner that manages the object.",
}, {
	Rule: RuleDangling, Severity: SeverityWarning,
	Summary:     "A reference names an owner that was deleted.",
	Consequence: "The owner counts as absent. An object whose owners are all absent is deleted.",
	Remedy:      "Remove the reference.",
	Fix:         "The reference is removed, if the object has another owner that is not absent.",
}, {
	Rule: RuleWrongUID, Severity: SeverityError,
	Summary:     "A reference has the name of one object and the UID of another, usually because the owner was recreated.",
	Consequence: "Owners are identified by UID, so the owner counts as absent. An object whose owners are all absent is deleted.",
	Remedy:      "Correct the UID, or remove the reference.",
}, {
	Rule: RuleNeverExisted, Severity: SeverityError,
	Summary:     "A reference names an object that does not exist and, as far as is known, never did.",
	Consequence: "The owner counts as absent. An object whose owners are all absent is deleted.",
	Remedy:      "Name an owner that exists, or remove the reference.",
	Fix:         "The reference is removed, if the object has another owner that is not absent.",
}, {
	Rule: RuleCrossNamespace, Severity: SeverityError,
	Summary:     "A reference names an owner in another namespace.",
	Consequence: "Such a reference is not followed, so the owner counts as absent. An object whose owners are all absent is deleted.",
	Remedy:      "Name an owner in the same namespace or a cluster-scoped owner, or remove the reference.",
}, {
	Rule: RuleClusterToNamespaced, Severity: SeverityError,
	Summary:     "A cluster-scoped object names an owner of a namespaced kind.",
	Consequence: "Such a reference is not followed, and the object is not garbage collected, even if its other owners are deleted: it may be leaked.",
	Remedy:      "Name a cluster-scoped owner, or let a finalizer on the namespaced object delete the cluster-scoped one.",
}, {
	Rule: RuleCycle, Severity: SeverityWarning,
	Summary:     "Objects own each other in a cycle.",
	Consequence: "They keep each other: the deletion of an owner outside the cycle does not delete them, and the deletion of any one deletes those of them that have no other owner.",
	Remedy:      "Remove the reference from the owner to its dependent.",
}, {
	Rule: RuleUnhonouredBlockOwner, Severity: SeverityWarning,
	Summary:     "blockOwnerDeletion has no effect: the reference is not followed, or the garbage collector does not watch the owner's kind (events, and kinds that cannot be listed, watched and deleted).",
	Consequence: "A foreground deletion of the owner does not wait for the object.",
	Remedy:      "Name an owner that can be deleted in the foreground, or omit blockOwnerDeletion.",
}, {
	Rule: RuleOnHold, Severity: SeverityWarning,
	Summary:     "The annotation ownership.kindred.dev/hold pauses controllers for the object. Set by hand it is an Info; left by an unfinished undeletion it is a Warning.",
	Consequence: "Kindred's controllers create, delete, adopt and update nothing for the object.",
	Remedy:      "Finish the undeletion, or remove the annotation.",
}, {
	Rule: RuleUndocumentedOwners, Severity: SeverityWarning,
	Summary:     "With a profile: the object has other owners than its project documents.",
	Consequence: "It is not deleted together with what it is a part of: it is left behind, or deleted too early. Tools of the project that follow owners miss it.",
	Remedy:      "Remove the owners that others have added. A missing owner is added by the project's controllers, if they run and are not paused.",
}}

// LintProfile is the name of a project's table of owners. The project that a name means never changes.
type LintProfile string

// ProfileClusterAPI is the table of the document "Owner References" of Cluster API.
const ProfileClusterAPI LintProfile = "cluster-api"

// LintProfiles returns the names of all profiles.
func LintProfiles() []LintProfile { return []LintProfile{ProfileClusterAPI} }
