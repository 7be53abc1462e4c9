// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// Settling is the time after its creation in which an object may have other owners than documented, because its controllers replace its first
// owner by a more appropriate one, and in which an undeletion may hold it.
const Settling = time.Minute

// Profile is a project's table of the owners of its objects. Under a profile only these objects are checked, what the table allows is no
// finding, and what the project's controllers mend by themselves is not repaired.
type Profile struct {
	project string
	rows    []row
	// root is the kind of the objects to which all others belong, and rootLabel has the name of an object's root.
	root      kind
	rootLabel string
}

// row has the owners of the objects of a kind. One of the alternatives must hold. The first row that matches an object counts.
type row struct {
	kind
	// label, if set, is on all objects of the row.
	label        string
	alternatives []owners
	// optional is true if an object may as well have no owner. One that is not shared is a template: if another object names it, the
	// project's controllers give it an owner.
	optional bool
	// shared is true for a kind that is not the project's own: only objects with the root's label, or with an owner of the project, count.
	shared bool
}

// owners are the owners that an object must have. It must have no others.
type owners []owner

// owner is an owner, or several of one kind.
type owner struct {
	kind
	role    role
	several bool
	// once is true if the project's controllers set the reference when they create the object, and do not restore it.
	once bool
}

// role tells the controller, whose reference has controller: true, from other owners.
type role int

const (
	plain role = iota
	controller
	either
)

// kind is a group, and a kind as a pattern of [path.Match].
type kind struct{ group, name string }

func (k kind) matches(gk schema.GroupKind) bool {
	// Cannot fail: the patterns are those of the tables.
	match, _ := path.Match(k.name, gk.Kind)
	return match && k.group == gk.Group
}

func (k kind) String() string { return strings.TrimPrefix(k.name, "*") }

func (w owner) matches(ref graph.Owner) bool {
	controls := ptr.Deref(ref.Controller, false)
	return w.kind.matches(ownerKind(ref)) && (w.role == either || controls == (w.role == controller))
}

func (w owner) String() string {
	switch {
	case w.several && strings.HasSuffix(w.name, "s"):
		return w.kind.String() + "es"
	case w.several:
		return w.kind.String() + "s"
	case w.role == controller:
		return w.kind.String() + " as its controller"
	}
	return w.kind.String()
}

func (w owners) String() string {
	if len(w) == 0 {
		return "no owner"
	}
	var names []string
	for _, owner := range w {
		names = append(names, owner.String())
	}
	return strings.Join(names, " and ")
}

// match reports whether the references are exactly those of w.
func (w owners) match(refs []graph.Owner) bool {
	for _, owner := range w {
		n := 0
		for _, ref := range refs {
			if owner.matches(ref) {
				n++
			}
		}
		if n == 0 || n > 1 && !owner.several {
			return false
		}
	}
	return !slices.ContainsFunc(refs, func(ref graph.Owner) bool {
		return !slices.ContainsFunc(w, func(owner owner) bool { return owner.matches(ref) })
	})
}

// isTemplate reports whether the objects of the row are templates.
func (r *row) isTemplate() bool { return r.optional && !r.shared }

// mayBeBare reports whether an object may have no owner.
func (r *row) mayBeBare(o *Object) bool { return r.optional && len(o.NamedBy) == 0 }

// allows reports whether the references are one of the row's alternatives.
func (r *row) allows(o *Object, refs []graph.Owner) bool {
	if len(refs) == 0 && r.mayBeBare(o) {
		return true
	}
	return slices.ContainsFunc(r.alternatives, func(w owners) bool { return w.match(refs) })
}

func (r *row) String() string {
	var all []string
	for _, w := range r.alternatives {
		all = append(all, w.String())
	}
	return strings.Join(all, ", or ")
}

// NeedsNames reports whether the rules need to know what names an object: a template without an owner, or with a reference that the
// project's controllers mend only for what names it.
func (p *Profile) NeedsNames(o *Object, kinds map[schema.GroupKind]Kind) bool {
	r := p.row(o)
	if r == nil || !r.isTemplate() {
		return false
	}
	return len(o.Owners) == 0 || len(o.Lost) > 0 || slices.ContainsFunc(o.Owners, func(ref graph.Owner) bool {
		versions := kinds[ownerKind(ref)].Versions
		return len(versions) > 0 && versions[0] != ref.APIVersion
	})
}

// Of reports whether the profile may have rules for an object, from its kind alone. [Profile.Covers] decides when its labels are known.
func (p *Profile) Of(o *Object) bool { return p.row(o) != nil }

// Covers reports whether an object is one of the project.
func (p *Profile) Covers(o *Object) bool {
	r := p.row(o)
	if r == nil || !r.shared || o.Labels[p.rootLabel] != "" {
		return r != nil
	}
	own := func(ref graph.Owner) bool {
		return slices.ContainsFunc(p.rows, func(r row) bool { return !r.shared && r.matches(ownerKind(ref)) })
	}
	return slices.ContainsFunc(o.Owners, own) || slices.ContainsFunc(lostOwners(o), own)
}

func (p *Profile) row(o *Object) *row {
	i := slices.IndexFunc(p.rows, func(r row) bool {
		_, labelled := o.Labels[r.label]
		return r.matches(groupKind(o)) && (labelled || r.label == "")
	})
	if i < 0 {
		return nil
	}
	return &p.rows[i]
}

func lostOwners(o *Object) []graph.Owner {
	var lost []graph.Owner
	for _, ref := range o.Lost {
		lost = append(lost, graph.Owner{OwnerReference: ref})
	}
	return lost
}

// distinct returns the references of o without those that name the same owner again.
func distinct(o *Object) []graph.Owner {
	var refs []graph.Owner
	seen := map[types.UID]bool{}
	for _, ref := range o.Owners {
		if !seen[ref.UID] {
			seen[ref.UID] = true
			refs = append(refs, ref)
		}
	}
	return refs
}

// undocumented finds objects that have other owners than the profile's table. References to absent owners are findings of other rules.
func undocumented(s *Snapshot, o *Object) []Finding {
	absent := slices.ContainsFunc(o.Owners, func(ref graph.Owner) bool { return s.fault(o, ref) != "" })
	if s.profile == nil || o.Unlabelled || absent || s.young(o) || len(s.restorable(o)) > 0 {
		return nil
	}
	r, refs := s.profile.row(o), distinct(o)
	switch other, strays := s.profile.stray(o, refs); {
	case !r.allows(o, refs):
		return []Finding{{Message: fmt.Sprintf("%s%s; %s documents for a %s: %s", has(refs), although(o, refs), s.profile.project, o.Kind, r)}}
	case strays:
		return []Finding{{Message: fmt.Sprintf("owned by %s, but its label %s names %s", nameOf(other), s.profile.rootLabel, o.Labels[s.profile.rootLabel])}}
	}
	return nil
}

// stray returns the owner of the root's kind that is not the one of the object's label.
func (p *Profile) stray(o *Object, refs []graph.Owner) (graph.Owner, bool) {
	i := slices.IndexFunc(refs, func(ref graph.Owner) bool {
		return p.root.matches(ownerKind(ref)) && o.Labels[p.rootLabel] != "" && o.Labels[p.rootLabel] != ref.Name
	})
	if i < 0 {
		return graph.Owner{}, false
	}
	return refs[i], true
}

// has says which owners an object has.
func has(refs []graph.Owner) string {
	if len(refs) == 0 {
		return "no owner"
	}
	var names []string
	for _, ref := range refs {
		name := nameOf(ref)
		if ptr.Deref(ref.Controller, false) {
			name += " as its controller"
		}
		names = append(names, name)
	}
	return "owned by " + enumerate(names)
}

// although says why an object needs an owner that may have none otherwise.
func although(o *Object, refs []graph.Owner) string {
	if len(refs) > 0 || len(o.NamedBy) == 0 {
		return ""
	}
	var names []string
	for _, n := range o.NamedBy {
		names = append(names, n.Kind+" "+n.Name)
	}
	return ", but is named by " + enumerate(names)
}

// young reports whether the controllers may not have come to an object yet.
func (s *Snapshot) young(o *Object) bool { return s.now.Sub(o.Created) < Settling }

// concerns reports whether a finding of another rule is one under the profile, and adapts it.
func (p *Profile) concerns(s *Snapshot, f *Finding) bool {
	switch r := p.row(f.Object); f.Rule {
	case ownership.RuleNoOwner: // Where an owner is required, the finding is that it is not as documented.
		return r.mayBeBare(f.Object) && !s.young(f.Object)
	case ownership.RuleTooManyOwners: // The table says how many.
		return false
	case ownership.RuleDangling:
		return f.Severity != ownership.SeverityInfo // The collector is about to act.
	case ownership.RuleOnHold:
		return f.Object.Hold.Undeletion == "" || !s.young(f.Object) // The undeletion is at work.
	case ownership.RuleLostReference:
		i := slices.IndexFunc(f.Object.Lost, func(lost metav1.OwnerReference) bool { return slices.Contains(f.Owners, lost.UID) })
		lost := graph.Owner{OwnerReference: f.Object.Lost[i]}
		p.leave(f, r, lost)
		return r.allows(f.Object, append(distinct(f.Object), lost))
	case ownership.RuleStaleVersion, ownership.RuleUnservedVersion:
		p.leave(f, r, graph.Owner{OwnerReference: *f.Fix.Remove})
	}
	return true
}

// leave leaves the repair of a reference to the project's controllers, if they correct it.
func (p *Profile) leave(f *Finding, r *row, ref graph.Owner) {
	if !r.corrected(f.Object, ref) {
		return
	}
	f.Fix, f.MendedBy = nil, "the controllers of "+p.project
	f.Remedy = fmt.Sprintf("Nothing to do: %s correct it, unless the %s is paused or they do not run.", f.MendedBy, p.root)
}

// corrected reports whether the project's controllers restore a reference that was removed from an object, or is in an old version.
func (r *row) corrected(o *Object, ref graph.Owner) bool {
	if r.isTemplate() {
		return slices.ContainsFunc(o.NamedBy, func(n Namer) bool { return n.gives(ref) })
	}
	return !slices.ContainsFunc(r.alternatives, func(w owners) bool {
		return slices.ContainsFunc(w, func(owner owner) bool { return owner.once && owner.kind.matches(ownerKind(ref)) })
	})
}
