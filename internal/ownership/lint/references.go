// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// adopting are the kinds whose controllers adopt every object that matches their selector and has
// no controller. If such a controller does not adopt an object again, it has released it.
var adopting = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "DaemonSet"}:         true,
	{Group: "apps", Kind: "Deployment"}:        true,
	{Group: "apps", Kind: "ReplicaSet"}:        true,
	{Group: "apps", Kind: "StatefulSet"}:       true,
	{Group: "batch", Kind: "Job"}:              true,
	{Group: "", Kind: "ReplicationController"}: true,
}

// restorable returns the lost references that only a repair can restore and whose owners the
// caller may read.
func (s *Snapshot) restorable(o *Object) []metav1.OwnerReference {
	var lost []metav1.OwnerReference
	for _, ref := range o.Lost {
		kind := ownerKind(graph.Owner{OwnerReference: ref})
		released := ptr.Deref(ref.Controller, false) && adopting[kind]
		if s.byUID[ref.UID] != nil && !released {
			lost = append(lost, ref)
		}
	}
	return lost
}

func lostReference(s *Snapshot, o *Object) []Finding {
	var findings []Finding
	for _, ref := range s.restorable(o) {
		lost := graph.Owner{OwnerReference: ref}
		findings = append(findings, Finding{
			Message: fmt.Sprintf("the reference to %s was removed, but the owner exists", nameOf(lost)),
			Fix:     s.restore(o, lost),
			Owners:  []types.UID{ref.UID},
		})
	}
	return findings
}

// restore returns the fix that restores a lost reference, in the preferred version. It returns
// nil if that would give the object a second controller.
func (s *Snapshot) restore(o *Object, lost graph.Owner) *Fix {
	controlled := slices.ContainsFunc(o.Owners, func(ref graph.Owner) bool { return ptr.Deref(ref.Controller, false) })
	if controlled && ptr.Deref(lost.Controller, false) {
		return nil
	}
	restored := lost.OwnerReference
	if preferred, _ := s.version(lost); preferred != "" {
		restored.APIVersion = preferred
	}
	return &Fix{Description: fmt.Sprintf("restore the reference to %s", nameOf(lost)), Add: &restored}
}

// version returns the preferred apiVersion for a reference, or "" if it is not known, and whether
// the reference's own version is served.
func (s *Snapshot) version(ref graph.Owner) (preferred string, served bool) {
	versions := s.kinds[ownerKind(ref)].Versions
	if len(versions) == 0 {
		return "", false
	}
	return versions[0], slices.Contains(versions, ref.APIVersion)
}

func staleVersion(s *Snapshot, o *Object) []Finding {
	return s.versions(o, true, "%s is named in version %s; the preferred version is %s")
}

func unservedVersion(s *Snapshot, o *Object) []Finding {
	return s.versions(o, false, "%s is named in version %s, which is not served; %s is")
}

// versions finds the references that should name another version.
func (s *Snapshot) versions(o *Object, whereServed bool, format string) []Finding {
	var findings []Finding
	for _, ref := range o.Owners {
		preferred, served := s.version(ref)
		if preferred == "" || preferred == ref.APIVersion || served != whereServed || s.fault(o, ref) != "" {
			continue
		}
		bumped := ref.OwnerReference
		bumped.APIVersion = preferred
		findings = append(findings, Finding{
			Message: fmt.Sprintf(format, nameOf(ref), ref.APIVersion, preferred),
			Fix: &Fix{
				Description: fmt.Sprintf("name %s in version %s", nameOf(ref), preferred),
				Remove:      &ref.OwnerReference, Add: &bumped,
			},
		})
	}
	return findings
}

func tooManyOwners(s *Snapshot, o *Object) []Finding {
	var names []string
	counted := map[types.UID]bool{}
	for _, ref := range o.Owners {
		if !counted[ref.UID] && !countsAsAbsent(s.fault(o, ref)) {
			counted[ref.UID] = true
			names = append(names, nameOf(ref))
		}
	}
	if len(names) < 2 {
		return nil
	}
	return []Finding{{Message: fmt.Sprintf("%d owners: %s", len(names), enumerate(names))}}
}

func twoControllers(_ *Snapshot, o *Object) []Finding {
	var names []string
	for _, ref := range o.Owners {
		if ptr.Deref(ref.Controller, false) {
			names = append(names, nameOf(ref))
		}
	}
	if len(names) < 2 {
		return nil
	}
	return []Finding{{Message: fmt.Sprintf("%d controllers: %s", len(names), enumerate(names))}}
}

// unhonouredBlock finds blockOwnerDeletion where it has no effect. The garbage collector honors
// it: it removes the finalizer foregroundDeletion from an owner when no followed reference blocks
// the owner. So it has no effect in a reference that is not followed, or for an owner that the
// collector does not watch. A reference to a deleted owner is no finding: there is nothing to
// block.
func unhonouredBlock(s *Snapshot, o *Object) []Finding {
	var findings []Finding
	for _, ref := range o.Owners {
		if !ptr.Deref(ref.BlockOwnerDeletion, false) {
			continue
		}
		kind, served := s.kinds[ownerKind(ref)]
		reason := s.unfollowed(o, ref)
		switch {
		case reason != "":
			findings = append(findings, Finding{Message: fmt.Sprintf("blockOwnerDeletion has no effect: %s", reason)})
		case served && !kind.Collected:
			findings = append(findings, Finding{
				Message:     fmt.Sprintf("%s is of a kind that the garbage collector does not watch", nameOf(ref)),
				Consequence: "A foreground deletion of the owner, if its kind supports it, never completes.",
			})
		}
	}
	return findings
}

// unfollowed returns why a reference is never followed, or "".
func (s *Snapshot) unfollowed(o *Object, ref graph.Owner) string {
	switch s.fault(o, ref) {
	case ownership.RuleUnservedKind:
		return fmt.Sprintf("the kind of %s is not served", nameOf(ref))
	case ownership.RuleClusterToNamespaced:
		return fmt.Sprintf("%s is namespaced, and the object is cluster-scoped", nameOf(ref))
	case ownership.RuleCrossNamespace:
		return fmt.Sprintf("%s is in another namespace", nameOf(ref))
	case ownership.RuleWrongUID:
		return fmt.Sprintf("UID and name of %s belong to different objects", nameOf(ref))
	}
	return ""
}

// cycle finds the objects that own each other, directly or indirectly, and reports each strongly
// connected component once, at its first object by name, with a shortest cycle through that
// object.
func cycle(s *Snapshot, o *Object) []Finding {
	set := s.cycles[o]
	if set == nil || set[0] != o {
		return nil
	}
	shortest := s.shortestCycle(o)
	names := make([]string, 0, len(shortest)+1)
	for _, member := range append(shortest, o) {
		names = append(names, member.Kind+" "+member.Name)
	}
	if len(names) > listed+1 {
		names = append(names[:listed-1], "...", names[len(names)-1])
	}
	message := "ownership cycle: " + strings.Join(names, " is owned by ")
	if more := len(set) - len(shortest); more > 0 {
		message += fmt.Sprintf("; %d more in further cycles with these", more)
	}
	return []Finding{{Message: message}}
}

// visibleOwners returns the owners of o that the caller may read.
func (s *Snapshot) visibleOwners(o *Object) []*Object {
	var owners []*Object
	for _, ref := range o.Owners {
		if owner := s.byUID[ref.UID]; owner != nil && ref.Followed && ref.Standing != Hidden {
			owners = append(owners, owner)
		}
	}
	return owners
}

// findCycles fills s.cycles.
func (s *Snapshot) findCycles() {
	component := graph.Components(s.objects, s.visibleOwners)
	members := map[int][]*Object{}
	for _, o := range s.objects { // They are sorted, so every set is sorted too.
		members[component[o]] = append(members[component[o]], o)
	}
	for _, set := range members {
		if len(set) == 1 && !slices.Contains(s.visibleOwners(set[0]), set[0]) {
			continue
		}
		for _, o := range set {
			s.cycles[o] = set
		}
	}
}

// shortestCycle returns a shortest path from o, which is in a cycle, through its owners back to o,
// without the last o.
func (s *Snapshot) shortestCycle(o *Object) []*Object {
	below := map[*Object]*Object{}
	for level := []*Object{o}; len(level) > 0; {
		at := level[0]
		level = level[1:]
		for _, owner := range s.visibleOwners(at) {
			if owner == o {
				path := []*Object{at}
				for ; at != o; at = below[at] {
					path = append(path, below[at])
				}
				slices.Reverse(path)
				return path
			}
			if below[owner] == nil {
				below[owner] = at
				level = append(level, owner)
			}
		}
	}
	return nil
}

// listed is the maximum number of names in a message.
const listed = 5

func enumerate(names []string) string {
	if more := len(names) - listed; more > 0 {
		names = append(slices.Clone(names[:listed]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
