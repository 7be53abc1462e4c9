// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lint holds the rules that owner references are checked by. It does no I/O: a
// [Snapshot] goes in, findings come out.
//
// A snapshot holds what one caller may read, and nothing else. So no rule can tell them more:
// an owner that they may not read has the standing [Hidden], and nothing is concluded from it.
//
// What the rules are called, what follows from breaking one and what to do about it stands
// once, in [ownership.LintRules]. Four of them are the guidelines of Cluster API: objects have
// an owner (no-owner), references that were lost are restored (lost-reference), they name the
// most recent version (stale-version, unserved-version), and there are no more of them than
// needed (too-many-owners).
package lint

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Finding is an object that breaks a rule.
type Finding struct {
	Object                       *Object
	Rule                         ownership.LintRule
	Severity                     ownership.LintSeverity
	Message, Consequence, Remedy string
	// Fix is nil where no change is safe.
	Fix *Fix
	// Owners are owners that the object ought to have and has not.
	Owners []types.UID
}

// Fix is a change of an object's references: one taken away, one added, or one replaced.
type Fix struct {
	Description string
	Remove, Add *metav1.OwnerReference
}

// Apply returns the references after the change. Fixes of one object go together, as each
// changes a reference of its own.
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

// checks are the rules. Each looks at one object that is not being deleted, and leaves out of
// its findings what the description of the rule says already.
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
}

// onHold finds objects that controllers leave alone. A person who puts an object on hold means it;
// an undeletion takes its holds off, unless it was interrupted.
func onHold(_ *Snapshot, o *Object) []Finding {
	switch {
	case o.Hold == nil:
		return nil
	case o.Hold.Undeletion == "":
		return []Finding{{Severity: ownership.SeverityInfo, Message: o.Hold.Message, Remedy: o.Hold.Remedy}}
	}
	return []Finding{{Message: o.Hold.Message, Remedy: o.Hold.Remedy}}
}

// Check checks the objects of a snapshot by some rules, or by all if none is named. Findings
// come sorted by object.
func Check(s *Snapshot, rules ...ownership.LintRule) []Finding {
	chosen := slices.DeleteFunc(ownership.LintRules(), func(d ownership.LintRuleDescription) bool {
		return len(rules) > 0 && !slices.Contains(rules, d.Rule)
	})
	var findings []Finding
	for _, o := range s.objects {
		if o.Deleting {
			continue
		}
		for _, d := range chosen {
			for _, f := range checks[d.Rule](s, o) {
				findings = append(findings, f.describedBy(o, d))
			}
		}
	}
	return findings
}

// describedBy fills in what the rule says of all its findings.
func (f Finding) describedBy(o *Object, d ownership.LintRuleDescription) Finding {
	f.Object, f.Rule = o, d.Rule
	f.Severity = cmp.Or(f.Severity, d.Severity)
	f.Consequence = cmp.Or(f.Consequence, d.Consequence)
	f.Remedy = cmp.Or(f.Remedy, d.Remedy)
	return f
}
