// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// fault is the one rule that a reference breaks whose owner is not there, or not known to be;
// "" for a reference that has an owner, or whose owner is hidden.
func (s *Snapshot) fault(o *Object, ref graph.Owner) ownership.LintRule {
	kind, served := s.kinds[ownerKind(ref).GroupKind()]
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

// absent tells whether a reference that is not followed names no object. The collector asks
// the API about it only where the answer matters to it; but what it has listed, it knows.
func (s *Snapshot) absent(o *Object, ref graph.Owner, kind Kind) bool {
	if ref.Standing != pending {
		return ref.Standing == dangles
	}
	owner, exists := s.named(o, ref)
	return kind.Complete && (!exists || owner.UID != ref.UID)
}

// misnamed tells what is wrong with a reference that names no object.
func (s *Snapshot) misnamed(o *Object, ref graph.Owner) ownership.LintRule {
	meant, known := s.byUID[ref.UID]
	if known && groupKind(meant) == ownerKind(ref).GroupKind() && meant.Name == ref.Name &&
		meant.Namespace != "" && meant.Namespace != o.Namespace {
		return ownership.RuleCrossNamespace
	}
	if _, exists := s.named(o, ref); known || exists {
		return ownership.RuleWrongUID
	}
	return ownership.RuleNeverExisted
}

// countsAsAbsent tells whether the collector takes the owner for absent.
func countsAsAbsent(fault ownership.LintRule) bool {
	switch fault {
	case ownership.RuleDangling, ownership.RuleWrongUID, ownership.RuleNeverExisted, ownership.RuleCrossNamespace:
		return true
	}
	return false
}

// faulty finds the references of o that break a rule, and has describe describe each.
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
			f.Severity, f.Remedy = ownership.SeverityInfo, "None is needed: the collector is at it."
		}
		return f
	})
}

func neverExisted(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleNeverExisted, func(ref graph.Owner) Finding {
		return Finding{
			Message:     fmt.Sprintf("%s with the UID %s does not exist, and nothing is known of it", nameOf(ref), ref.UID),
			Consequence: s.fate(o),
			Fix:         s.drop(o, ref),
		}
	})
}

func wrongUID(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleWrongUID, func(ref graph.Owner) Finding {
		f := Finding{Consequence: s.fate(o)}
		if named, exists := s.named(o, ref); exists {
			f.Message = fmt.Sprintf("%s has the UID %s, and the reference names %s", nameOf(ref), named.UID, ref.UID)
		} else {
			f.Message = fmt.Sprintf("%s does not exist, and the UID %s is that of %s", nameOf(ref), ref.UID, titleOf(s.byUID[ref.UID]))
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
		return Finding{Message: fmt.Sprintf("%s would be in a namespace, and the object is in none", nameOf(ref))}
	})
}

func unservedKind(s *Snapshot, o *Object) []Finding {
	return s.faulty(o, ownership.RuleUnservedKind, func(ref graph.Owner) Finding {
		return Finding{Message: fmt.Sprintf("no kind %s is served in group %q, which %s is of", ref.Kind, ownerKind(ref).Group, nameOf(ref))}
	})
}

func (s *Snapshot) anyFault(o *Object, rules ...ownership.LintRule) bool {
	return slices.ContainsFunc(o.Owners, func(ref graph.Owner) bool { return slices.Contains(rules, s.fault(o, ref)) })
}

// fate is what the collector does about an object with an absent owner.
func (s *Snapshot) fate(o *Object) string {
	if s.anyFault(o, ownership.RuleUnservedKind, ownership.RuleClusterToNamespaced) {
		return "The collector leaves the object alone, because another reference cannot be resolved."
	}
	if owner, there := s.anOwner(o); there {
		return fmt.Sprintf("The collector drops the reference; the object stays with %s.", nameOf(owner))
	}
	return "The collector deletes the object."
}

// anOwner is a reference of o that does not count as absent.
func (s *Snapshot) anOwner(o *Object) (graph.Owner, bool) {
	i := slices.IndexFunc(o.Owners, func(ref graph.Owner) bool { return !countsAsAbsent(s.fault(o, ref)) })
	if i < 0 {
		return graph.Owner{}, false
	}
	return o.Owners[i], true
}

// drop takes an absent owner's reference away, as the collector does once it can. Without
// another owner it would keep an object that the collector deletes.
func (s *Snapshot) drop(o *Object, ref graph.Owner) *Fix {
	if _, there := s.anOwner(o); !there {
		return nil
	}
	return &Fix{Description: fmt.Sprintf("drop the reference to %s", nameOf(ref)), Remove: &ref.OwnerReference}
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
