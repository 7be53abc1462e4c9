// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// LintRule is the name of a rule of lint. It never changes its meaning.
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
)

// LintRuleDescription describes a rule, for lists, documents and reports.
// +k8s:openapi-gen=false
// +k8s:deepcopy-gen=false
type LintRuleDescription struct {
	Rule     LintRule     `json:"rule"`
	Severity LintSeverity `json:"severity"`
	// Summary is what the rule finds.
	Summary string `json:"summary"`
	// Consequence is what will happen because of it. A finding may say it more precisely.
	Consequence string `json:"consequence"`
	// Remedy is what to do about it. A finding may say it more precisely.
	Remedy string `json:"remedy"`
	// Fix is the safe change, and when it is made. It is empty for rules that have none.
	Fix string `json:"fix,omitempty"`
}

// DescribeLintRule describes one rule.
func DescribeLintRule(rule LintRule) (LintRuleDescription, bool) {
	i := slices.IndexFunc(rules, func(d LintRuleDescription) bool { return d.Rule == rule })
	if i < 0 {
		return LintRuleDescription{}, false
	}
	return rules[i], true
}

// LintRules describes all rules.
func LintRules() []LintRuleDescription { return slices.Clone(rules) }

var rules = []LintRuleDescription{{
	Rule: RuleNoOwner, Severity: SeverityWarning,
	Summary:     "The object has no owner, and most of its siblings have one.",
	Consequence: "Nothing deletes it with the rest: it is left behind.",
	Remedy:      "Give it the owner that its siblings have, or take the label away that makes it one of them.",
}, {
	Rule: RuleLostReference, Severity: SeverityWarning,
	Summary:     "A reference was taken away, its owner exists, and nothing took its place.",
	Consequence: "It does not go with that owner any more: it is left behind.",
	Remedy:      "Restore the reference, unless it was taken away on purpose.",
	Fix:         "The reference is restored, unless another owner controls the object by now.",
}, {
	Rule: RuleStaleVersion, Severity: SeverityWarning,
	Summary:     "A reference names an apiVersion that is served and not the preferred one.",
	Consequence: "Once that version is not served any more, whoever looks the owner up by it does not find it.",
	Remedy:      "Name the preferred version.",
	Fix:         "The reference names the preferred version.",
}, {
	Rule: RuleUnservedVersion, Severity: SeverityError,
	Summary:     "A reference names an apiVersion that is not served, though the kind is in another.",
	Consequence: "Whoever looks the owner up by it does not find it: upstream's collector leaves the object behind, and controllers do not get the owner. Kindred's collector compares no versions.",
	Remedy:      "Name a version that is served.",
	Fix:         "The reference names the preferred version.",
}, {
	Rule: RuleUnservedKind, Severity: SeverityError,
	Summary:     "A reference names a kind that is not served in any version.",
	Consequence: "The object is left alone whatever becomes of its other owners: it may be leaked.",
	Remedy:      "Install the kind's definition again, or drop the reference.",
}, {
	Rule: RuleTooManyOwners, Severity: SeverityInfo,
	Summary:     "The object has more than one owner.",
	Consequence: "It stays until the last of them is gone.",
	Remedy:      "Keep the owner that it cannot do without; several should be the exception.",
}, {
	Rule: RuleTwoControllers, Severity: SeverityError,
	Summary:     "More than one reference has controller set. The API refuses it today; older data may have it.",
	Consequence: "Every update of the object is refused, that of its finalizers too, and controllers may fight over it.",
	Remedy:      "Leave controller set on the reference to the one that manages the object.",
}, {
	Rule: RuleDangling, Severity: SeverityWarning,
	Summary:     "A reference names an owner that was deleted.",
	Consequence: "It counts as absent. When all references do, the object is deleted.",
	Remedy:      "Drop the reference.",
	Fix:         "The reference is dropped, if another one remains that is not absent.",
}, {
	Rule: RuleWrongUID, Severity: SeverityError,
	Summary:     "UID and name of a reference belong to different objects, mostly because the owner was created anew.",
	Consequence: "It counts as absent, as owners are known by their UID. When all references do, the object is deleted.",
	Remedy:      "Write the UID of the owner that is meant, or drop the reference.",
}, {
	Rule: RuleNeverExisted, Severity: SeverityError,
	Summary:     "A reference names an object that does not exist, and never did as far as is known.",
	Consequence: "It counts as absent. When all references do, the object is deleted.",
	Remedy:      "Name an owner that exists, or drop the reference.",
	Fix:         "The reference is dropped, if another one remains that is not absent.",
}, {
	Rule: RuleCrossNamespace, Severity: SeverityError,
	Summary:     "A reference names an owner in another namespace.",
	Consequence: "It is never followed, and counts as absent. When all references do, the object is deleted.",
	Remedy:      "Name an owner in the same namespace or a cluster-scoped one, or drop the reference.",
}, {
	Rule: RuleClusterToNamespaced, Severity: SeverityError,
	Summary:     "A cluster-scoped object names an owner of a kind that is in namespaces.",
	Consequence: "It is never followed, and the object is left alone whatever becomes of its other owners: it may be leaked.",
	Remedy:      "Name a cluster-scoped owner, or use a finalizer of the would-be owner to delete the object.",
}, {
	Rule: RuleCycle, Severity: SeverityWarning,
	Summary:     "Objects own each other in a circle.",
	Consequence: "They keep each other: no owner outside of the circle takes them all along, and the deletion of any one takes along those that nothing else owns.",
	Remedy:      "Drop the reference that points from the owner to its dependent.",
}, {
	Rule: RuleUnhonouredBlockOwner, Severity: SeverityWarning,
	Summary:     "blockOwnerDeletion is set where it holds up nobody: the reference is not followed, or the collector does not watch the owner's kind (events, and what cannot be listed, watched and deleted).",
	Consequence: "A foreground deletion of the owner does not wait for the object.",
	Remedy:      "Name an owner that can be deleted in the foreground, or leave blockOwnerDeletion out.",
}, {
	Rule: RuleOnHold, Severity: SeverityWarning,
	Summary:     "The annotation ownership.kindred.dev/hold keeps controllers off the object. By hand that is an Info, after an undeletion that is not finished a Warning.",
	Consequence: "No controller of Kindred's works for the object: nothing is created, deleted, adopted or counted for it.",
	Remedy:      "Go on with the undeletion, or take the annotation off.",
}}
