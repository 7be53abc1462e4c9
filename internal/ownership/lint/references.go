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

// adopting are the kinds whose controllers take every object that their selector matches and
// that nothing controls. What they do not take back they have released.
var adopting = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "DaemonSet"}:         true,
	{Group: "apps", Kind: "Deployment"}:        true,
	{Group: "apps", Kind: "ReplicaSet"}:        true,
	{Group: "apps", Kind: "StatefulSet"}:       true,
	{Group: "batch", Kind: "Job"}:              true,
	{Group: "", Kind: "ReplicationController"}: true,
}

// restorable are the lost references whose owners may be shown, and which nobody but a repair
// restores.
func (s *Snapshot) restorable(o *Object) []metav1.OwnerReference {
	var lost []metav1.OwnerReference
	for _, ref := range o.Lost {
		kind := ownerKind(graph.Owner{OwnerReference: ref}).GroupKind()
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
			Message: fmt.Sprintf("the reference to %s was taken away, and the owner exists", nameOf(lost)),
			Fix:     s.restore(o, lost),
			Owners:  []types.UID{ref.UID},
		})
	}
	return findings
}

// restore gives a lost reference back, in the preferred version. An object that has another
// controller by now is not given a second one.
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

// version returns the apiVersion that a reference should have, or "" when that is not known,
// and whether the one that it has is served.
func (s *Snapshot) version(ref graph.Owner) (preferred string, served bool) {
	gvk := ownerKind(ref)
	versions := s.kinds[gvk.GroupKind()].Versions
	if len(versions) == 0 {
		return "", false
	}
	served = slices.Contains(versions, gvk.Version)
	gvk.Version = versions[0]
	return gvk.GroupVersion().String(), served
}

func staleVersion(s *Snapshot, o *Object) []Finding {
	return s.versions(o, true, "%s is named in version %s, and the preferred one is %s")
}

func unservedVersion(s *Snapshot, o *Object) []Finding {
	return s.versions(o, false, "%s is named in version %s, which is not served; %s is")
}

// versions finds the references that should name another version than they do.
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
	met := map[types.UID]bool{}
	for _, ref := range o.Owners {
		if !met[ref.UID] && !countsAsAbsent(s.fault(o, ref)) {
			met[ref.UID] = true
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

// unhonouredBlock finds blockOwnerDeletion where nobody can honour it. It is the garbage
// collector that does: it takes the finalizer foregroundDeletion from an owner when no
// reference that it follows blocks it any more. So it means nothing in a reference that is
// never followed, and nothing to an owner that the collector does not watch. Where the owner
// is merely gone, there is nothing left to hold up.
func unhonouredBlock(s *Snapshot, o *Object) []Finding {
	var findings []Finding
	for _, ref := range o.Owners {
		if !ptr.Deref(ref.BlockOwnerDeletion, false) {
			continue
		}
		kind, served := s.kinds[ownerKind(ref).GroupKind()]
		reason := s.unfollowed(o, ref)
		switch {
		case reason != "":
			findings = append(findings, Finding{Message: fmt.Sprintf("blockOwnerDeletion holds up nobody: %s", reason)})
		case served && !kind.Collected:
			findings = append(findings, Finding{
				Message:     fmt.Sprintf("%s is of a kind that the collector does not watch: it does not see it go", nameOf(ref)),
				Consequence: "A foreground deletion of the owner, if its kind has that at all, never ends.",
			})
		}
	}
	return findings
}

// unfollowed is why a reference is never followed, or "".
func (s *Snapshot) unfollowed(o *Object, ref graph.Owner) string {
	switch s.fault(o, ref) {
	case ownership.RuleUnservedKind:
		return fmt.Sprintf("the kind of %s is not served", nameOf(ref))
	case ownership.RuleClusterToNamespaced:
		return fmt.Sprintf("%s would be in a namespace, and the object is in none", nameOf(ref))
	case ownership.RuleCrossNamespace:
		return fmt.Sprintf("%s is in another namespace", nameOf(ref))
	case ownership.RuleWrongUID:
		return fmt.Sprintf("UID and name of %s are not of the same object", nameOf(ref))
	}
	return ""
}

// cycle finds the objects that own each other, directly or through others, and reports each such
// set once, at the first of its objects by name, with a shortest circle through that object.
func cycle(s *Snapshot, o *Object) []Finding {
	set := s.circles[o]
	if set == nil || set[0] != o {
		return nil
	}
	circle := s.circle(o)
	names := make([]string, 0, len(circle)+1)
	for _, member := range append(circle, o) {
		names = append(names, member.Kind+" "+member.Name)
	}
	if len(names) > listed+1 {
		names = append(names[:listed-1], "...", names[len(names)-1])
	}
	message := "owned in a circle: " + strings.Join(names, " by ")
	if more := len(set) - len(circle); more > 0 {
		message += fmt.Sprintf("; in further circles with these: %d more", more)
	}
	return []Finding{{Message: message}}
}

// climb returns the owners of o that may be shown.
func (s *Snapshot) climb(o *Object) []*Object {
	var owners []*Object
	for _, ref := range o.Owners {
		if owner := s.byUID[ref.UID]; owner != nil && ref.Followed && ref.Standing != Hidden {
			owners = append(owners, owner)
		}
	}
	return owners
}

// findCircles finds all sets of objects that own each other.
func (s *Snapshot) findCircles() {
	component := graph.Components(s.objects, s.climb)
	members := map[int][]*Object{}
	for _, o := range s.objects { // sorted, so that each set is
		members[component[o]] = append(members[component[o]], o)
	}
	for _, set := range members {
		if len(set) == 1 && !slices.Contains(s.climb(set[0]), set[0]) {
			continue
		}
		for _, o := range set {
			s.circles[o] = set
		}
	}
}

// circle is a shortest way from o, which is in a circle, upwards and back to o, without its end.
func (s *Snapshot) circle(o *Object) []*Object {
	below := map[*Object]*Object{}
	for level := []*Object{o}; len(level) > 0; {
		at := level[0]
		level = level[1:]
		for _, owner := range s.climb(at) {
			if owner == o {
				circle := []*Object{at}
				for ; at != o; at = below[at] {
					circle = append(circle, below[at])
				}
				slices.Reverse(circle)
				return circle
			}
			if below[owner] == nil {
				below[owner] = at
				level = append(level, owner)
			}
		}
	}
	return nil
}

// listed is how many names a message has at most.
const listed = 5

func enumerate(names []string) string {
	if more := len(names) - listed; more > 0 {
		names = append(slices.Clone(names[:listed]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
