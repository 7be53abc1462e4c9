// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/lint"
)

func validateLint(review *ownership.OwnershipLint) field.ErrorList {
	return validateLintSpec(&review.Spec)
}

func validateLintSpec(spec *ownership.OwnershipLintSpec) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if spec.Namespace != "" {
		for _, message := range apimachineryvalidation.ValidateNamespaceName(spec.Namespace, false) {
			errs = append(errs, field.Invalid(path.Child("namespace"), spec.Namespace, message))
		}
	}
	if object := spec.Object; object != nil {
		errs = append(errs, validateObject(*object, path.Child("object"))...)
		if spec.Namespace != "" {
			errs = append(errs, field.Forbidden(path.Child("namespace"), "must not be set together with object, which has a namespace"))
		}
	}
	if spec.Profile != "" && lint.ProfileOf(spec.Profile) == nil {
		errs = append(errs, field.NotSupported(path.Child("profile"), spec.Profile, ownership.LintProfiles()))
	}
	for i, rule := range spec.Rules {
		if _, known := ownership.DescribeLintRule(rule); !known {
			errs = append(errs, field.NotSupported(path.Child("rules").Index(i), rule, ruleNames()))
		}
	}
	return errs
}

func ruleNames() []ownership.LintRule {
	var names []ownership.LintRule
	for _, d := range ownership.LintRules() {
		names = append(names, d.Rule)
	}
	return names
}

func (q *question) lint(ctx context.Context, spec *ownership.OwnershipLintSpec) (ownership.OwnershipLintStatus, error) {
	found, err := q.inspect(ctx, spec)
	if err != nil {
		return ownership.OwnershipLintStatus{}, err
	}
	s := ownership.OwnershipLintStatus{Checked: found.checked, Hidden: found.hidden, Warnings: found.warnings}
	for i := range found.findings {
		s.Findings = append(s.Findings, findingOf(&found.findings[i]))
	}
	return s, nil
}

func findingOf(f *lint.Finding) ownership.LintFinding {
	out := ownership.LintFinding{
		Object: referenceOf(f.Object.Object), Rule: f.Rule, Severity: f.Severity,
		Message: f.Message, Consequence: f.Consequence, Remedy: f.Remedy, MendedBy: f.MendedBy,
	}
	if f.Fix != nil {
		out.Fix = &ownership.LintFix{
			Description:     f.Fix.Description,
			ResourceVersion: f.Object.ResourceVersion,
			OwnerReferences: f.Fix.Apply(referencesOf(f.Object)),
		}
	}
	return out
}

func referencesOf(o *lint.Object) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, owner := range o.Owners {
		refs = append(refs, owner.OwnerReference)
	}
	return refs
}

// inspection is a check of owner references: its input and its findings.
type inspection struct {
	*question
	spec *ownership.OwnershipLintSpec
	// profile may be nil.
	profile *lint.Profile

	// From the graph: all relevant objects, the UIDs of those to check, and the served resources.
	objects  []graph.Object
	selected map[types.UID]bool
	served   map[schema.GroupKind]graph.Resource
	unlisted []graph.Resource

	findings        []lint.Finding
	checked, hidden int32
	warnings        []string
}

func (q *question) inspect(ctx context.Context, spec *ownership.OwnershipLintSpec) (*inspection, error) {
	in := &inspection{question: q, spec: spec, profile: lint.ProfileOf(spec.Profile), selected: map[types.UID]bool{}, served: map[schema.GroupKind]graph.Resource{}}
	var root *graph.Object
	if spec.Object != nil {
		object, err := q.find(ctx, *spec.Object)
		if err != nil {
			return nil, err
		}
		root = &object
	}
	in.take(root)
	in.recall(ctx)
	in.choose(root)
	for _, r := range in.unlisted {
		if q.access.require(ctx, "list", r, spec.Namespace, "") == nil {
			in.warn("the objects of %s are not listed yet and are not checked", r.GroupResource())
		}
	}
	objects := in.readable(ctx)
	in.settle(ctx, objects)
	in.label(ctx, objects)
	in.hold(ctx, objects)
	in.count(objects)
	kinds := in.kinds(ctx)
	in.name(ctx, objects, kinds)
	snapshot := lint.NewSnapshot(objects, kinds).Under(in.profile, in.Clock.Now())
	for _, f := range lint.Check(snapshot, spec.Rules...) {
		if in.concerns(&f) {
			in.findings = append(in.findings, f)
		}
	}
	return in, nil
}

func (in *inspection) warn(format string, args ...any) {
	in.warnings = append(in.warnings, fmt.Sprintf(format, args...))
}

// take copies the relevant objects from the graph: those of the namespaces to check, cluster-scoped
// ones, which may be owners, and all other owners.
func (in *inspection) take(root *graph.Object) {
	namespace := in.spec.Namespace
	if root != nil {
		namespace = root.Namespace
	}
	in.Collector.View(func(g *graph.Graph) {
		matters := func(_ graph.Resource, in string) bool { return namespace == "" || in == namespace || in == "" }
		if in.isOnlyOf(ownership.RuleOnHold) && root == nil {
			in.objects = slices.DeleteFunc(g.Held(), func(o graph.Object) bool { return !matters(o.Resource, o.Namespace) })
		} else {
			in.objects = g.Select(matters)
			in.objects = append(in.objects, ownersElsewhere(g, in.objects)...)
		}
		in.unlisted = g.Unlisted()
		for _, r := range g.Resources() {
			gk := schema.GroupKind{Group: r.Group, Kind: r.Kind}
			if served, ok := g.Served(gk); ok {
				in.served[gk] = served
			}
		}
	})
}

// ownersElsewhere returns the direct and indirect owners of objects that are not among objects.
func ownersElsewhere(g *graph.Graph, objects []graph.Object) []graph.Object {
	known := map[types.UID]bool{}
	for i := range objects {
		known[objects[i].UID] = true
	}
	var found []graph.Object
	look := func(o *graph.Object) {
		for _, ref := range o.Owners {
			if owner, ok := g.Object(ref.UID); ok && !known[ref.UID] {
				known[ref.UID] = true
				found = append(found, owner)
			}
		}
	}
	for i := range objects {
		look(&objects[i])
	}
	for i := 0; i < len(found); i++ {
		look(&found[i])
	}
	return found
}

// choose selects the objects to check: those of a namespace, all, or one object and its dependents,
// including those that have lost their reference.
func (in *inspection) choose(root *graph.Object) {
	if root == nil {
		for i := range in.objects {
			o := &in.objects[i]
			in.selected[o.UID] = in.spec.Namespace == "" || o.Namespace == in.spec.Namespace
		}
		return
	}
	owned := map[types.UID][]types.UID{}
	for i := range in.objects {
		o := &in.objects[i]
		for _, ref := range o.Owners {
			owned[ref.UID] = append(owned[ref.UID], o.UID)
		}
		for _, ref := range o.Lost {
			owned[ref.UID] = append(owned[ref.UID], o.UID)
		}
	}
	level := []types.UID{root.UID}
	for in.selected[root.UID] = true; len(level) > 0; {
		id := level[0]
		level = level[1:]
		for _, dependent := range owned[id] {
			if !in.selected[dependent] {
				in.selected[dependent] = true
				level = append(level, dependent)
			}
		}
	}
}

// concerns reports whether a finding is about a selected object, or about one that such an object
// should own.
func (in *inspection) concerns(f *lint.Finding) bool {
	if in.selected[f.Object.UID] {
		return true
	}
	return in.spec.Object != nil && slices.ContainsFunc(f.Owners, func(owner types.UID) bool { return in.selected[owner] })
}

// readable returns the objects that the caller may read. The standing of owners that the caller may
// not read is hidden.
func (in *inspection) readable(ctx context.Context) []*lint.Object {
	var readable []*lint.Object
	for i := range in.objects {
		o := &in.objects[i]
		if !in.access.mayGet(ctx, o.Resource, o.Namespace, o.Name) {
			if in.selected[o.UID] && (in.profile == nil || in.profile.Of(&lint.Object{Object: *o})) {
				in.hidden++
			}
			continue
		}
		for j := range o.Owners {
			if owner := &o.Owners[j]; in.hides(ctx, o, owner) {
				owner.Standing, owner.Followed = lint.Hidden, false
			}
		}
		readable = append(readable, &lint.Object{Object: *o})
	}
	return readable
}

// settle looks up owners that the graph does not have. The watches of two kinds are not in step, so that it may get an object before an
// owner that was created earlier.
func (in *inspection) settle(ctx context.Context, objects []*lint.Object) {
	known := map[types.UID]bool{}
	for _, o := range objects {
		known[o.UID] = true
	}
	unknown := map[objectName][]*graph.Owner{}
	for _, o := range objects {
		for i := range o.Owners {
			ref := &o.Owners[i]
			r, served := in.resourceOf(ref)
			if !served || known[ref.UID] || ref.Standing != lint.Pending {
				continue
			}
			name := objectName{resource: r, name: ref.Name}
			if r.Namespaced {
				name.namespace = o.Namespace
			}
			unknown[name] = append(unknown[name], ref)
		}
	}
	for name, uid := range in.live(ctx, slices.Collect(maps.Keys(unknown))) {
		for _, ref := range unknown[name] {
			if ref.UID == uid {
				ref.Standing = lint.Solid
			}
		}
	}
}

// resourceOf returns the resource of the kind that a reference names.
func (in *inspection) resourceOf(ref *graph.Owner) (graph.Resource, bool) {
	r, served := in.served[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()]
	return r, served
}

// count counts the objects to check.
func (in *inspection) count(objects []*lint.Object) {
	for _, o := range objects {
		if in.selected[o.UID] && !o.Deleting && (in.profile == nil || in.profile.Covers(o)) {
			in.checked++
		}
	}
}

// hides reports whether the caller may not get the object that a reference names.
func (in *inspection) hides(ctx context.Context, o *graph.Object, ref *graph.Owner) bool {
	r, served := in.resourceOf(ref)
	if !served {
		return false
	}
	namespace := ""
	if r.Namespaced {
		namespace = o.Namespace
	}
	return !in.access.mayGet(ctx, r, namespace, ref.Name)
}
