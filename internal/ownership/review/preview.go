// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

func validatePreview(review *ownership.DeletionPreview) field.ErrorList {
	target, path := review.Spec.Target, field.NewPath("spec", "target")
	errs := validateKind(target.APIVersion, target.Kind, path)
	switch {
	case target.Name == "" && target.Selector == nil:
		errs = append(errs, field.Required(path.Child("name"), "either name or selector is needed"))
	case target.Name != "" && target.Selector != nil:
		errs = append(errs, field.Forbidden(path.Child("selector"), "may not be given beside name"))
	}
	if target.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(target.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	options := metav1.DeleteOptions{PropagationPolicy: review.Spec.PropagationPolicy}
	for _, err := range metav1validation.ValidateDeleteOptions(&options) {
		err.Field = "spec." + err.Field
		errs = append(errs, err)
	}
	return errs
}

func validateKind(apiVersion, kind string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch _, err := schema.ParseGroupVersion(apiVersion); {
	case apiVersion == "":
		errs = append(errs, field.Required(path.Child("apiVersion"), ""))
	case err != nil:
		errs = append(errs, field.Invalid(path.Child("apiVersion"), apiVersion, err.Error()))
	}
	if kind == "" {
		errs = append(errs, field.Required(path.Child("kind"), ""))
	}
	return errs
}

// preview rehearses a deletion.
func (q *question) preview(ctx context.Context, spec *ownership.DeletionPreviewSpec) (ownership.DeletionPreviewStatus, error) {
	targets, err := q.targets(ctx, spec.Target)
	if err != nil {
		return ownership.DeletionPreviewStatus{}, err
	}
	p := prediction{question: q, targets: map[types.UID]bool{}, container: map[types.UID]types.UID{}, objects: map[types.UID]graph.Object{}}
	for _, target := range targets {
		p.delete(target, q.propagation(ctx, target.Resource, spec.PropagationPolicy))
	}
	p.rehearse(ctx)
	return p.status(ctx), nil
}

func (q *question) targets(ctx context.Context, target ownership.DeletionTarget) ([]graph.Object, error) {
	if target.Selector == nil {
		object, err := q.find(ctx, ownership.ObjectReference{
			APIVersion: target.APIVersion, Kind: target.Kind, Namespace: target.Namespace, Name: target.Name,
		})
		return []graph.Object{object}, err
	}
	r, err := q.served(target.APIVersion, target.Kind)
	if err != nil {
		return nil, err
	}
	return q.choose(ctx, r, target.Namespace, target.Selector)
}

// propagation is the policy of a deletion: the one that is asked for, or the kind's.
func (q *question) propagation(ctx context.Context, r graph.Resource, asked *metav1.DeletionPropagation) metav1.DeletionPropagation {
	switch {
	case asked != nil:
		return *asked
	case q.policy.Orphans(ctx, r.GroupResource()):
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationBackground
}

// prediction is what is foreseen of a deletion.
type prediction struct {
	*question
	targets   map[types.UID]bool
	deletions []graph.Deletion
	// container is the namespace, or the definition, that an object goes with.
	container map[types.UID]types.UID

	foreseen []graph.Foreseen
	objects  map[types.UID]graph.Object
	unlisted []graph.Resource
}

// delete has an object deleted, with all that it contains.
func (p *prediction) delete(target graph.Object, policy metav1.DeletionPropagation) {
	p.targets[target.UID] = true
	p.deletions = append(p.deletions, graph.Deletion{UID: target.UID, Policy: policy})
	for _, content := range p.contents(target) {
		p.container[content.UID] = target.UID
		p.deletions = append(p.deletions, graph.Deletion{UID: content.UID, Policy: metav1.DeletePropagationBackground})
	}
}

var (
	namespaces  = schema.GroupResource{Resource: "namespaces"}
	definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
)

// contents are the objects that the deletion of one deletes though it does not own them: the
// objects in a namespace, and those of a custom resource.
func (p *prediction) contents(of graph.Object) []graph.Object {
	var choose func(r graph.Resource, namespace string) bool
	switch of.GroupResource() {
	case namespaces:
		choose = func(_ graph.Resource, namespace string) bool { return namespace == of.Name }
	case definitions:
		defined := schema.ParseGroupResource(of.Name)
		choose = func(r graph.Resource, _ string) bool { return r.GroupResource() == defined }
	default:
		return nil
	}
	var contents []graph.Object
	p.Collector.View(func(g *graph.Graph) { contents = g.Select(choose) })
	sortObjects(contents)
	return contents
}

// rehearse finds out what becomes of everything. The graph is locked while the part of it
// that matters is copied, and not while that is played through.
func (p *prediction) rehearse(ctx context.Context) {
	roots := make([]types.UID, len(p.deletions))
	for i := range p.deletions {
		roots[i] = p.deletions[i].UID
	}
	var rehearsal *graph.Rehearsal
	p.Collector.View(func(g *graph.Graph) {
		rehearsal = g.Rehearse(roots...)
		p.unlisted = g.Unlisted()
	})
	lookup := func(a graph.Action) graph.Outcome { return p.Collector.Lookup(ctx, a) }
	p.foreseen = rehearsal.Delete(lookup, p.deletions...)
	for _, f := range p.foreseen {
		p.objects[f.UID] = f.Object
	}
	p.sort()
}

// sort puts what was foreseen into the order of a tree: the targets as they were asked for, then
// their dependents level by level, and the objects of a level as siblings.
func (p *prediction) sort() {
	levels := map[types.UID]int{}
	// The rehearsal reaches the nearest owner of an object before the object.
	for _, f := range p.foreseen {
		levels[f.UID] = len(p.foreseen)
		for _, owner := range f.Owners {
			if level, reached := levels[owner.UID]; reached && owner.UID != f.UID {
				levels[f.UID] = min(levels[f.UID], level+1)
			}
		}
		if p.container[f.UID] != "" {
			levels[f.UID] = 1
		}
		if p.targets[f.UID] {
			levels[f.UID] = 0
		}
	}
	slices.SortStableFunc(p.foreseen, func(a, b graph.Foreseen) int {
		level := levels[a.UID]
		if order := cmp.Compare(level, levels[b.UID]); order != 0 || level == 0 {
			return order
		}
		return referenceOf(a.Object).Compare(referenceOf(b.Object))
	})
}

func (p *prediction) status(ctx context.Context) ownership.DeletionPreviewStatus {
	s := ownership.DeletionPreviewStatus{Warnings: p.warnings(ctx)}
	for i := range p.foreseen {
		f := &p.foreseen[i]
		if !p.access.mayGet(ctx, f.Resource, f.Namespace, f.Name) {
			s.Hidden++
			continue
		}
		object := p.object(ctx, f)
		s.Objects = append(s.Objects, object)
		switch object.Outcome {
		case ownership.OutcomeDeleted:
			s.Deleted++
		case ownership.OutcomeOrphaned:
			s.Orphaned++
		case ownership.OutcomeKept:
			s.Kept++
		}
		if len(object.BlockedBy) > 0 {
			s.Blocked++
		}
	}
	return s
}

func (p *prediction) object(ctx context.Context, f *graph.Foreseen) ownership.PreviewedObject {
	return ownership.PreviewedObject{
		ObjectReference: referenceOf(f.Object),
		Outcome:         ownership.DeletionOutcome(f.Fate),
		Target:          p.targets[f.UID],
		Owners:          p.owners(ctx, f.Namespace, f.Owners),
		BlockedBy:       append(p.blocks(ctx, p.objects, ownBlocks(f)), p.blockedContent(ctx, f.UID)...),
		KeptBy:          p.owners(ctx, f.Namespace, f.Stays),
	}
}

// cleanup is the finalizer of definitions. It is taken away when no custom resource is left,
// and so is not what blocks.
const cleanup = "customresourcecleanup.apiextensions.k8s.io"

func ownBlocks(f *graph.Foreseen) []graph.Block {
	return slices.DeleteFunc(slices.Clone(f.Blocks), func(b graph.Block) bool { return b.Finalizer == cleanup })
}

// blockedContent is what has to go before its container and is blocked itself.
func (p *prediction) blockedContent(ctx context.Context, container types.UID) []ownership.DeletionBlock {
	if !p.targets[container] || len(p.container) == 0 {
		return nil
	}
	var blocks []ownership.DeletionBlock
	for _, f := range p.foreseen {
		if p.container[f.UID] != container || len(f.Blocks) == 0 {
			continue
		}
		var block ownership.DeletionBlock
		p.refer(ctx, f.Object, &block.Content, &block.Hidden)
		blocks = append(blocks, block)
	}
	return blocks
}

// warnings say what a rehearsal cannot know.
func (p *prediction) warnings(ctx context.Context) []string {
	var warnings []string
	goes := map[types.UID]bool{}
	for _, f := range p.foreseen {
		goes[f.UID] = f.Fate == graph.Deleted
	}
	for _, f := range p.foreseen {
		if owner := controllerOf(f.Object); p.targets[f.UID] && owner != nil && !goes[owner.UID] {
			warnings = append(warnings, fmt.Sprintf("%s %s is controlled by %s %s, which stays and may create another in its place",
				f.Kind, f.Name, owner.Kind, owner.Name))
		}
	}
	for _, r := range p.unlisted {
		if p.access.require(ctx, "list", r, "", "") == nil {
			warnings = append(warnings, fmt.Sprintf("the objects of %s are not known yet, and are left out", r.GroupResource()))
		}
	}
	slices.SortFunc(warnings, strings.Compare)
	return warnings
}

// controllerOf is the owner that controls an object and exists.
func controllerOf(o graph.Object) *graph.Owner {
	i := slices.IndexFunc(o.Owners, func(owner graph.Owner) bool {
		return owner.Controller != nil && *owner.Controller && owner.Standing == "solid"
	})
	if i < 0 {
		return nil
	}
	return &o.Owners[i]
}
