// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

func validatePreview(review *ownership.DeletionPreview) field.ErrorList {
	var errs field.ErrorList
	spec, path := &review.Spec, field.NewPath("spec")
	switch {
	case spec.Target != nil && len(spec.Targets) > 0:
		errs = append(errs, field.Forbidden(path.Child("targets"), "must not be set together with target"))
	case spec.Target != nil:
		errs = validateTarget(spec.Target, path.Child("target"))
	case len(spec.Targets) == 0:
		errs = append(errs, field.Required(path.Child("target"), "either target or targets is required"))
	}
	for i := range spec.Targets {
		errs = append(errs, validateTarget(&spec.Targets[i], path.Child("targets").Index(i))...)
	}
	options := metav1.DeleteOptions{PropagationPolicy: spec.PropagationPolicy}
	for _, err := range metav1validation.ValidateDeleteOptions(&options) {
		err.Field = "spec." + err.Field
		errs = append(errs, err)
	}
	return errs
}

func validateTarget(target *ownership.DeletionTarget, path *field.Path) field.ErrorList {
	errs := validateKind(target.APIVersion, target.Kind, path)
	if target.Selector == nil {
		if target.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), "either name or selector is required"))
		}
		return errs
	}
	if target.Name != "" {
		errs = append(errs, field.Forbidden(path.Child("selector"), "must not be set together with name"))
	}
	if target.UID != "" {
		errs = append(errs, field.Forbidden(path.Child("uid"), "must not be set together with selector"))
	}
	return append(errs, metav1validation.ValidateLabelSelector(target.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
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

// preview rehearses a deletion on a copy of the graph.
func (q *question) preview(ctx context.Context, spec *ownership.DeletionPreviewSpec) (ownership.DeletionPreviewStatus, error) {
	specs := spec.Targets
	if spec.Target != nil {
		specs = []ownership.DeletionTarget{*spec.Target}
	}
	targets, versions, err := q.targets(ctx, specs)
	if err != nil {
		return ownership.DeletionPreviewStatus{}, err
	}
	p := prediction{
		question: q, targets: map[types.UID]bool{}, containers: map[types.UID][]types.UID{}, causes: map[types.UID]types.UID{},
		objects: map[types.UID]graph.Object{},
	}
	for _, target := range p.inOrder(targets) {
		p.targets[target.UID] = true
		p.deletions = append(p.deletions, graph.Deletion{UID: target.UID, Policy: q.propagation(versions[target.UID].WithResource(target.Resource.Resource), spec.PropagationPolicy)})
	}
	p.empty(targets)
	p.rehearse(ctx)
	if added, err := p.addBindings(ctx); err != nil {
		return ownership.DeletionPreviewStatus{}, err
	} else if added {
		p.rehearse(ctx)
	}
	return p.status(ctx)
}

// targets returns the target objects, each once, and the versions in which they are deleted.
func (q *question) targets(ctx context.Context, specs []ownership.DeletionTarget) ([]graph.Object, map[types.UID]schema.GroupVersion, error) {
	read := q.reader(specs)
	versions := map[types.UID]schema.GroupVersion{}
	var targets []graph.Object
	for i := range specs {
		objects, err := q.target(ctx, &specs[i], read)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range objects {
			if _, seen := versions[o.UID]; !seen {
				versions[o.UID] = schema.FromAPIVersionAndKind(specs[i].APIVersion, specs[i].Kind).GroupVersion()
				targets = append(targets, o)
			}
		}
	}
	return targets, versions, nil
}

func (q *question) target(ctx context.Context, spec *ownership.DeletionTarget, read reader) ([]graph.Object, error) {
	if spec.Selector != nil {
		r, err := q.served(spec.APIVersion, spec.Kind)
		if err != nil {
			return nil, err
		}
		return q.choose(ctx, r, spec.Namespace, spec.Selector)
	}
	if _, served := q.resource(schema.FromAPIVersionAndKind(spec.APIVersion, spec.Kind).GroupKind()); spec.UID != "" && !served {
		return nil, nil // It was deleted with its definition.
	}
	object, err := q.findBy(ctx, read, ownership.ObjectReference{
		APIVersion: spec.APIVersion, Kind: spec.Kind, Namespace: spec.Namespace, Name: spec.Name, UID: spec.UID,
	})
	if spec.UID != "" && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) {
		return nil, q.awaitGone(ctx, spec.UID)
	}
	return []graph.Object{object}, err
}

// reader reads the metadata of one object.
type reader func(ctx context.Context, r graph.Resource, namespace, name string) (*metav1.PartialObjectMetadata, error)

// reader returns a reader that lists a kind and namespace if many targets are in it, and otherwise
// gets objects one by one.
func (q *question) reader(specs []ownership.DeletionTarget) reader {
	type where struct {
		kind      schema.GroupKind
		namespace string
	}
	count := map[where]int{}
	for i := range specs {
		kind := schema.FromAPIVersionAndKind(specs[i].APIVersion, specs[i].Kind).GroupKind()
		count[where{kind, specs[i].Namespace}]++
	}
	lists := map[place]map[string]*metav1.PartialObjectMetadata{}
	return func(ctx context.Context, r graph.Resource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
		if count[where{schema.GroupKind{Group: r.Group, Kind: r.Kind}, namespace}] <= few {
			return q.getMetadata(ctx, r, namespace, name)
		}
		p := place{r, namespace}
		if lists[p] == nil {
			list, err := q.Metadata.Resource(r.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			lists[p] = make(map[string]*metav1.PartialObjectMetadata, len(list.Items))
			for i := range list.Items {
				lists[p][list.Items[i].Name] = &list.Items[i]
			}
		}
		if object := lists[p][name]; object != nil {
			return object, nil
		}
		return nil, apierrors.NewNotFound(r.GroupResource(), name)
	}
}

// propagation returns the propagation policy of a deletion: the requested one, or the kind's
// default in the version of the request.
func (q *question) propagation(r schema.GroupVersionResource, requested *metav1.DeletionPropagation) metav1.DeletionPropagation {
	switch {
	case requested != nil:
		return *requested
	case q.policy.Orphans(r):
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationBackground
}

// prediction is the result of a rehearsal.
type prediction struct {
	*question
	targets   map[types.UID]bool
	deletions []graph.Deletion
	// containers are, by UID, the namespace and the definition that an object is deleted with.
	containers map[types.UID][]types.UID
	// causes are, by UID, the object that does not own an object, and with which a controller deletes it.
	causes map[types.UID]types.UID

	forecasts []graph.Forecast
	objects   map[types.UID]graph.Object
	unlisted  []graph.Resource
	// undecided are objects whose fate depends on which target is deleted first.
	undecided []undecided
}

// undecided is an object with two fates.
type undecided struct {
	graph.Object
	fates [2]graph.Fate
}

var (
	namespaces  = schema.GroupResource{Resource: "namespaces"}
	definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
)

// inOrder sorts targets in the best order to delete them: first namespaces and definitions, since
// nothing can be created in them while they are being deleted, then owners before their dependents,
// so that no controller replaces a dependent that is deleted before it.
func (p *prediction) inOrder(targets []graph.Object) []graph.Object {
	byUID := make(map[types.UID]graph.Object, len(targets))
	var first, others []types.UID
	for _, o := range targets {
		byUID[o.UID] = o
		if gr := o.GroupResource(); gr == namespaces || gr == definitions {
			first = append(first, o.UID)
			continue
		}
		others = append(others, o.UID)
	}
	p.Collector.View(func(g *graph.Graph) { others = g.OwnersFirst(others) })
	sorted := make([]graph.Object, 0, len(targets))
	for _, id := range append(first, others...) {
		sorted = append(sorted, byUID[id])
	}
	return sorted
}

// empty adds deletions for the content of targets: the objects in a namespace and the custom
// resources of a definition. Controllers delete them in the background.
func (p *prediction) empty(targets []graph.Object) {
	inside, defined := map[string]types.UID{}, map[schema.GroupResource]types.UID{}
	for _, o := range targets {
		switch o.GroupResource() {
		case namespaces:
			inside[o.Name] = o.UID
		case definitions:
			defined[schema.ParseGroupResource(o.Name)] = o.UID
		}
	}
	if len(inside) == 0 && len(defined) == 0 {
		return
	}
	var contents []graph.Object
	p.Collector.View(func(g *graph.Graph) {
		contents = g.Select(func(r graph.Resource, namespace string) bool {
			return inside[namespace] != "" || defined[r.GroupResource()] != ""
		})
	})
	sortObjects(contents)
	for _, o := range contents {
		for _, container := range []types.UID{inside[o.Namespace], defined[o.GroupResource()]} {
			if container != "" {
				p.containers[o.UID] = append(p.containers[o.UID], container)
			}
		}
		p.deletions = append(p.deletions, graph.Deletion{UID: o.UID, Policy: metav1.DeletePropagationBackground})
	}
}

// rehearse rehearses the deletions. The graph is locked only while the affected part is copied.
func (p *prediction) rehearse(ctx context.Context) {
	roots := make([]types.UID, len(p.deletions))
	for i := range p.deletions {
		roots[i] = p.deletions[i].UID
	}
	var atOnce, inTurn *graph.Rehearsal
	p.Collector.View(func(g *graph.Graph) {
		atOnce = g.Rehearse(roots...)
		if graph.OrderMatters(p.deletions) {
			inTurn = g.Rehearse(roots...)
		}
		p.unlisted = g.Unlisted()
	})
	lookup := func(a graph.Action) graph.Outcome { return p.Collector.Lookup(ctx, a) }
	p.undecided = nil
	p.forecasts = atOnce.Delete(lookup, p.deletions...)
	for _, f := range p.forecasts {
		p.objects[f.UID] = f.Object
	}
	p.sort()
	if inTurn != nil {
		p.compare(inTurn.DeleteInTurn(lookup, p.deletions...))
	}
}

// sort sorts the forecasts as in a tree: the targets in the order of their deletion, then their
// dependents level by level, and siblings within a level.
func (p *prediction) sort() {
	levels := map[types.UID]int{}
	// The rehearsal reaches the nearest owner of an object before the object.
	for _, f := range p.forecasts {
		levels[f.UID] = len(p.forecasts)
		for _, owner := range f.Owners {
			if level, reached := levels[owner.UID]; reached && owner.UID != f.UID {
				levels[f.UID] = min(levels[f.UID], level+1)
			}
		}
		if cause, caused := p.causes[f.UID]; caused {
			levels[f.UID] = levels[cause] + 1
		}
		if len(p.containers[f.UID]) > 0 {
			levels[f.UID] = 1
		}
		if p.targets[f.UID] {
			levels[f.UID] = 0
		}
	}
	slices.SortStableFunc(p.forecasts, func(a, b graph.Forecast) int {
		level := levels[a.UID]
		if order := cmp.Compare(level, levels[b.UID]); order != 0 || level == 0 {
			return order
		}
		return referenceOf(a.Object).Compare(referenceOf(b.Object))
	})
}

// compare finds the objects whose fate differs if the targets are deleted slowly.
func (p *prediction) compare(inTurn []graph.Forecast) {
	slow := make(map[types.UID]graph.Forecast, len(inTurn))
	for _, f := range inTurn {
		slow[f.UID] = f
	}
	for _, f := range p.forecasts {
		if other := slow[f.UID]; other.Fate != f.Fate {
			p.undecided = append(p.undecided, undecided{f.Object, [2]graph.Fate{f.Fate, other.Fate}})
		}
		delete(slow, f.UID)
	}
	for _, f := range slow {
		p.undecided = append(p.undecided, undecided{f.Object, [2]graph.Fate{"", f.Fate}})
	}
}

func (p *prediction) status(ctx context.Context) (ownership.DeletionPreviewStatus, error) {
	volumes, err := p.volumes(ctx)
	if err != nil {
		return ownership.DeletionPreviewStatus{}, err
	}
	s := ownership.DeletionPreviewStatus{Warnings: p.warnings(ctx)}
	blocked := p.blockedContents(ctx)
	for i := range p.forecasts {
		f := &p.forecasts[i]
		if !p.access.mayGet(ctx, f.Resource, f.Namespace, f.Name) {
			s.Hidden++
			continue
		}
		object := p.object(ctx, f)
		object.BlockedBy = append(object.BlockedBy, blocked[f.UID]...)
		object.Volume = volumes[f.UID]
		object.DeletedWith = p.cause(ctx, f.UID)
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
	return s, nil
}

func (p *prediction) object(ctx context.Context, f *graph.Forecast) ownership.PreviewedObject {
	return ownership.PreviewedObject{
		ObjectReference: referenceOf(f.Object),
		Outcome:         ownership.DeletionOutcome(f.Fate),
		Target:          p.targets[f.UID],
		Deleting:        f.Deleting,
		Owners:          p.owners(ctx, f.Namespace, f.Owners),
		BlockedBy:       p.blocks(ctx, p.objects, ownBlocks(f)),
		KeptBy:          p.owners(ctx, f.Namespace, f.RemainingOwners),
	}
}

// cleanup is the finalizer of definitions. It is removed when no custom resource is left, so the
// custom resources are reported as blocking instead.
const cleanup = "customresourcecleanup.apiextensions.k8s.io"

func ownBlocks(f *graph.Forecast) []graph.Block {
	return slices.DeleteFunc(slices.Clone(f.Blocks), func(b graph.Block) bool { return b.Finalizer == cleanup })
}

// blockedContents returns, by container, the content whose own deletion is blocked.
func (p *prediction) blockedContents(ctx context.Context) map[types.UID][]ownership.DeletionBlock {
	blocked := map[types.UID][]ownership.DeletionBlock{}
	for _, f := range p.forecasts {
		if len(f.Blocks) == 0 {
			continue
		}
		for _, container := range p.containers[f.UID] {
			var block ownership.DeletionBlock
			p.refer(ctx, f.Object, &block.Content, &block.Hidden)
			blocked[container] = append(blocked[container], block)
		}
	}
	return blocked
}

// warnings returns what a rehearsal cannot predict.
func (p *prediction) warnings(ctx context.Context) []string {
	var warnings []string
	deleted := map[types.UID]bool{}
	for _, f := range p.forecasts {
		deleted[f.UID] = f.Fate == graph.Deleted
	}
	for _, f := range p.forecasts {
		if p.targets[f.UID] && !p.access.mayDelete(ctx, f.Resource, f.Namespace, f.Name) {
			warnings = append(warnings, fmt.Sprintf("you may not delete %s %s", f.Kind, f.Name))
		}
		if owner := controllerOf(f.Object); p.targets[f.UID] && owner != nil && !deleted[owner.UID] {
			warnings = append(warnings, fmt.Sprintf("%s %s is controlled by %s %s, which stays and may recreate it",
				f.Kind, f.Name, owner.Kind, owner.Name))
		}
	}
	for _, u := range p.undecided {
		if p.access.mayGet(ctx, u.Resource, u.Namespace, u.Name) {
			warnings = append(warnings, fmt.Sprintf("the outcome for %s %s depends on the order: %s if all targets are deleted at once, %s if the garbage collector finishes one before the next",
				u.Kind, u.Name, fateText(u.fates[0]), fateText(u.fates[1])))
		}
	}
	for _, r := range p.unlisted {
		if p.access.require(ctx, "list", r, "", "") == nil {
			warnings = append(warnings, fmt.Sprintf("the objects of %s are not listed yet and are missing here", r.GroupResource()))
		}
	}
	slices.SortFunc(warnings, strings.Compare)
	return warnings
}

func fateText(f graph.Fate) string {
	if f == "" {
		return "untouched"
	}
	return strings.ToLower(string(f))
}

// controllerOf returns the existing controller of an object, or nil.
func controllerOf(o graph.Object) *graph.Owner {
	i := slices.IndexFunc(o.Owners, func(owner graph.Owner) bool {
		return owner.Controller != nil && *owner.Controller && owner.Standing == "solid"
	})
	if i < 0 {
		return nil
	}
	return &o.Owners[i]
}
