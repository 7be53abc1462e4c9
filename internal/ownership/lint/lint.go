// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lint checks owner references by rules. It does no I/O: it turns a [Snapshot] into
// findings.
//
// A snapshot contains only objects that the caller may read, so that no finding can disclose
// anything else. A reference to an owner that the caller may not read has the standing [Hidden],
// and no rule draws conclusions from it.
//
// [ownership.LintRules] has the names, consequences and remedies of the rules. Five of them are
// the guidelines of Cluster API: objects have an owner (no-owner), lost references are restored
// (lost-reference), references name the latest version (stale-version, unserved-version), and
// several owners are the exception (too-many-owners). Under the [Profile] of Cluster API, its objects are
// compared with its table of owners as well (undocumented-owners).
package lint

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Finding is an object that violates a rule.
type Finding struct {
	Object                       *Object
	Rule                         ownership.LintRule
	Severity                     ownership.LintSeverity
	Message, Consequence, Remedy string
	// Fix is nil if no change is safe.
	Fix *Fix
	// MendedBy names who corrects the fault without a repair.
	MendedBy string
	// Owners are the UIDs of owners that the object should have but does not refer to.
	Owners []types.UID
}

// Fix removes, adds or replaces one reference of an object.
type Fix struct {
	Description string
	Remove, Add *metav1.OwnerReference
}

// Apply returns the references after the change. All fixes of one object can be applied
// together, because each changes a different reference.
func (f *Fix) Apply(refs []metav1.OwnerReference) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, ref := range refs {
		switch {
		case f.Remove == nil || !same(ref, *f.Remove):
			out = append(out, ref)
		case f.Add != nil:
			out = append(out, *f.Add)
		}
	}
	if f.Remove == nil && f.Add != nil {
		out = append(out, *f.Add)
	}
	return out
}

func same(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion
}

// checks are the rules. Each checks one object that is not being deleted, and sets only those
// fields of its findings that differ from the rule's description.
var checks = map[ownership.LintRule]func(*Snapshot, *Object) []Finding{
	ownership.RuleNoOwner:              noOwner,
	ownership.RuleLostReference:        lostReference,
	ownership.RuleStaleVersion:         staleVersion,
	ownership.RuleUnservedVersion:      unservedVersion,
	ownership.RuleUnservedKind:         unservedKind,
	ownership.RuleTooManyOwners:        tooManyOwners,
	ownership.RuleTwoControllers:       twoControllers,
	ownership.RuleDangling:             dangling,
	ownership.RuleWrongUID:             wrongUID,
	ownership.RuleNeverExisted:         neverExisted,
	ownership.RuleCrossNamespace:       crossNamespace,
	ownership.RuleClusterToNamespaced:  clusterToNamespaced,
	ownership.RuleCycle:                cycle,
	ownership.RuleUnhonouredBlockOwner: unhonouredBlock,
	ownership.RuleOnHold:               onHold,
	ownership.RuleUndocumentedOwners:   undocumented,
}

// onHold finds objects on hold. A hold set by hand is intended, so it is only an Info; a hold of
// an undeletion means that the undeletion was interrupted.
func onHold(_ *Snapshot, o *Object) []Finding {
	switch {
	case o.Hold == nil:
		return nil
	case o.Hold.Undeletion == "":
		return []Finding{{Severity: ownership.SeverityInfo, Message: o.Hold.Message, Remedy: o.Hold.Remedy}}
	}
	return []Finding{{Message: o.Hold.Message, Remedy: o.Hold.Remedy}}
}

// Check checks the objects of a snapshot by the named rules, or by all rules if none is named.
// Findings are sorted by object.
func Check(s *Snapshot, rules ...ownership.LintRule) []Finding {
	chosen := slices.DeleteFunc(ownership.LintRules(), func(d ownership.LintRuleDescription) bool {
		return len(rules) > 0 && !slices.Contains(rules, d.Rule)
	})
	var findings []Finding
	for _, o := range s.objects {
		if o.Deleting || s.profile != nil && !s.profile.Covers(o) {
			continue
		}
		for _, d := range chosen {
			for _, f := range checks[d.Rule](s, o) {
				f = f.describedBy(o, d)
				if s.profile == nil || s.profile.concerns(s, &f) {
					findings = append(findings, f)
				}
			}
		}
	}
	return findings
}

// describedBy fills in the fields that the check left to the rule's description.
func (f Finding) describedBy(o *Object, d ownership.LintRuleDescription) Finding {
	f.Object, f.Rule = o, d.Rule
	f.Severity = cmp.Or(f.Severity, d.Severity)
	f.Consequence = cmp.Or(f.Consequence, d.Consequence)
	f.Remedy = cmp.Or(f.Remedy, d.Remedy)
	return f
}
