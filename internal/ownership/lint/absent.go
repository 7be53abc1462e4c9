// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// fault returns the rule that a reference violates because its owner does not exist or cannot be
// looked up. It returns "" if the owner exists or is hidden.
func (s *Snapshot) fault(o *Object, ref graph.Owner) ownership.LintRule {
	kind, served := s.kinds[ownerKind(ref)]
	switch {
	case ref.Standing == Hidden:
		return ""
	case ref.Standing == unresolved && !served:
		return ownership.RuleUnservedKind
	case o.Namespace == "" && kind.Namespaced:
		return ownership.RuleClusterToNamespaced
	case ref.Followed && ref.Standing == dangles:
		return ownership.RuleDangling
	case ref.Followed, !s.absent(o, ref, kind):
		return ""
	}
	return s.misnamed(o, ref)
}

// absent reports whether a reference that is not followed names no object. The collector looks
// owners up only if its decision depends on the result; for the rest, a complete list of the kind
// is as good, if owners that are in no list were looked up.
func (s *Snapshot) absent(o *Object, ref graph.Owner, kind Kind) bool {
	if ref.Standing != Pending {
		return ref.Standing == dangles
	}
	owner, exists := s.named(o, ref)
	return kind.Complete && (!exists || owner.UID != ref.UID)
}

// misnamed returns the rule that a reference to no object violates.
func (s *Snapshot) misnamed(o *Object, ref graph.Owner) ownership.LintRule {
	owner, known := s.byUID[ref.UID]
	if known && groupKind(owner) == ownerKind(ref) && owner.Name == ref.Name &&
		owner.Namespace != "" && owner.Namespace != o.Namespace {
		return ownership.RuleCrossNamespace
	}
	if _, exists := s.named(o, ref); known || exists {
		return ownership.RuleWrongUID
	}
	return ownership.RuleNeverExisted
}

// countsAsAbsent reports whether the collector treats the owner as absent.
func countsAsAbsent(fault ownership.LintRule) bool {
	switch fault {
	case ownership.RuleDangling, ownership.RuleWrongUID, ownership.RuleNeverExisted, ownership.RuleCrossNamespace:
		return true
	}
	return false
}

// faulty returns a finding, made by describe, for each reference of o that violates a rule.
func (s *Snapshot) faulty(o *Object, rule ownership.LintRule, describe func(graph.Owner) Finding) []Finding {
	var findings []Finding
	for _, ref := range o.Owners {
		if s.fault(o, ref) == rule {
			findings = append(findings, describe(ref))
		}
	}
	return findings
}

func dangling(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleDangling, func(ref graph.Owner) Finding {
		f := Finding{
			Message:     fmt.Sprintf("%s was deleted", nameOf(ref)),
			Consequence: s.fate(o),
			Fix:         s.drop(o, ref),
		}
		if !s.anyFault(o, ownership.RuleUnservedKind, ownership.RuleClusterToNamespaced) {
			f.Severity, f.Remedy = ownership.SeverityInfo, "Nothing to do: the garbage collector handles it."
		}
		return f
	})
}

func neverExisted(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleNeverExisted, func(ref graph.Owner) Finding {
		return Finding{
			Message:     fmt.Sprintf("%s with the UID %s does not exist, and has not existed since the server started", nameOf(ref), ref.UID),
			Consequence: s.fate(o),
			Fix:         s.drop(o, ref),
		}
	})
}

func wrongUID(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleWrongUID, func(ref graph.Owner) Finding {
		f := Finding{Consequence: s.fate(o)}
		if named, exists := s.named(o, ref); exists {
			f.Message = fmt.Sprintf("%s has the UID %s, but the reference has %s", nameOf(ref), named.UID, ref.UID)
		} else {
			f.Message = fmt.Sprintf("%s does not exist, and the UID %s belongs to %s", nameOf(ref), ref.UID, titleOf(s.byUID[ref.UID]))
		}
		return f
	})
}

func crossNamespace(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleCrossNamespace, func(ref graph.Owner) Finding {
		return Finding{
			Message:     fmt.Sprintf("%s is in namespace %q", nameOf(ref), s.byUID[ref.UID].Namespace),
			Consequence: s.fate(o),
		}
	})
}

func clusterToNamespaced(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleClusterToNamespaced, func(ref graph.Owner) Finding {
		return Finding{Message: fmt.Sprintf("%s is namespaced, and the object is cluster-scoped", nameOf(ref))}
	})
}

func unservedKind(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleUnservedKind, func(ref graph.Owner) Finding {
		return Finding{Message: fmt.Sprintf("the kind of %s is not served in group %q", nameOf(ref), ownerKind(ref).Group)}
	})
}

func (s *Snapshot) anyFault(o *Object, rules ...ownership.LintRule) bool {
	return slices.ContainsFunc(o.Owners, func(ref graph.Owner) bool { return slices.Contains(rules, s.fault(o, ref)) })
}

// fate says what the collector does with an object that has an absent owner.
func (s *Snapshot) fate(o *Object) string {
	if s.anyFault(o, ownership.RuleUnservedKind, ownership.RuleClusterToNamespaced) {
		return "The garbage collector leaves the object alone, because another reference cannot be resolved."
	}
	if owner, ok := s.anOwner(o); ok {
		return fmt.Sprintf("The garbage collector removes the reference; the object stays with %s.", nameOf(owner))
	}
	return "The garbage collector deletes the object."
}

// anOwner returns a reference of o whose owner does not count as absent.
func (s *Snapshot) anOwner(o *Object) (graph.Owner, bool) {
	i := slices.IndexFunc(o.Owners, func(ref graph.Owner) bool { return !countsAsAbsent(s.fault(o, ref)) })
	if i < 0 {
		return graph.Owner{}, false
	}
	return o.Owners[i], true
}

// drop returns the fix that removes the reference to an absent owner, as the collector does when
// it can. It returns nil if the object has no other owner: without any reference, the collector
// would keep an object that it should delete.
func (s *Snapshot) drop(o *Object, ref graph.Owner) *Fix {
	if _, ok := s.anOwner(o); !ok {
		return nil
	}
	return &Fix{Description: fmt.Sprintf("remove the reference to %s", nameOf(ref)), Remove: &ref.OwnerReference}
}

// nameOf names the owner of a reference.
func nameOf(ref graph.Owner) string { return ref.Kind + " " + ref.Name }

// titleOf names an object.
func titleOf(o *Object) string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return fmt.Sprintf("%s %s in namespace %s", o.Kind, o.Name, o.Namespace)
}
