// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// resource returns the resource of a kind, if it is served.
func (q *question) resource(kind schema.GroupKind) (r graph.Resource, served bool) {
	q.Collector.View(func(g *graph.Graph) { r, served = g.Served(kind) })
	return r, served
}

// validateObject validates a reference that must name an object.
func validateObject(object ownership.ObjectReference, path *field.Path) field.ErrorList {
	errs := validateKind(object.APIVersion, object.Kind, path)
	if object.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}

// served returns the resource of a kind. It refuses kinds that the collector does not watch.
func (q *question) served(apiVersion, kind string) (graph.Resource, error) {
	wanted := schema.FromAPIVersionAndKind(apiVersion, kind)
	resource, known := q.resource(wanted.GroupKind())
	if !known || !resource.Watched {
		return graph.Resource{}, apierrors.NewBadRequest(fmt.Sprintf(
			"kind %s in group %q is not served, or not watched by the garbage collector", wanted.Kind, wanted.Group))
	}
	return resource, nil
}

// inPlace checks that a namespace is given if and only if the kind is namespaced.
func inPlace(r graph.Resource, namespace string, required bool) error {
	switch {
	case !r.Namespaced && namespace != "":
		return apierrors.NewBadRequest(fmt.Sprintf("kind %s is cluster-scoped, but namespace %q is given", r.Kind, namespace))
	case r.Namespaced && namespace == "" && required:
		return apierrors.NewBadRequest(fmt.Sprintf("kind %s is namespaced, but no namespace is given", r.Kind))
	}
	return nil
}

// find returns the object that ref names, once the collector has observed its current state.
func (q *question) find(ctx context.Context, ref ownership.ObjectReference) (graph.Object, error) {
	return q.findBy(ctx, q.getMetadata, ref)
}

func (q *question) getMetadata(ctx context.Context, r graph.Resource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	return q.Metadata.Resource(r.GroupVersionResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// findBy is like find, but reads the object with read.
func (q *question) findBy(ctx context.Context, read reader, ref ownership.ObjectReference) (graph.Object, error) {
	r, err := q.served(ref.APIVersion, ref.Kind)
	if err != nil {
		return graph.Object{}, err
	}
	if err := inPlace(r, ref.Namespace, true); err != nil {
		return graph.Object{}, err
	}
	if err := q.access.require(ctx, "get", r, ref.Namespace, ref.Name); err != nil {
		return graph.Object{}, err
	}
	object, err := read(ctx, r, ref.Namespace, ref.Name)
	if err != nil {
		return graph.Object{}, err
	}
	if ref.UID != "" && ref.UID != object.UID {
		return graph.Object{}, apierrors.NewConflict(r.GroupResource(), ref.Name, fmt.Errorf(
			"the requested UID is %s, but the object of this name has %s", ref.UID, object.UID))
	}
	return q.await(ctx, r, object)
}

// choose returns the objects that a selector matches.
func (q *question) choose(ctx context.Context, r graph.Resource, namespace string, selector *metav1.LabelSelector) ([]graph.Object, error) {
	if err := inPlace(r, namespace, false); err != nil {
		return nil, err
	}
	if err := q.access.require(ctx, "list", r, namespace, ""); err != nil {
		return nil, err
	}
	list, err := q.Metadata.Resource(r.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(selector),
	})
	if err != nil {
		return nil, err
	}
	objects := make([]graph.Object, 0, len(list.Items))
	for i := range list.Items {
		object, err := q.await(ctx, r, &list.Items[i])
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// The collector observes a write some milliseconds later.
const (
	observeEvery = 5 * time.Millisecond
	observeLimit = 5 * time.Second
	// readAgain is the number of polls of the graph after which an object is read again.
	readAgain = 20
)

// await waits until the collector has observed this or a later state of an object. It returns a
// NotFound error if the object was deleted before the collector observed it.
func (q *question) await(ctx context.Context, r graph.Resource, object *metav1.PartialObjectMetadata) (seen graph.Object, err error) {
	var gone error
	looks := 0
	err = q.until(ctx, func() (ok bool) {
		if seen, ok = q.observed(object); ok {
			return true
		}
		if looks++; looks%readAgain == 0 {
			gone = q.gone(ctx, r, object)
		}
		return gone != nil
	}, fmt.Sprintf("the garbage collector has not yet observed the current state of %s %q; try again", r.Kind, object.Name))
	return seen, cmp.Or(err, gone)
}

// gone returns a NotFound error if an object that was read before no longer exists.
func (q *question) gone(ctx context.Context, r graph.Resource, object *metav1.PartialObjectMetadata) error {
	now, err := q.getMetadata(ctx, r, object.Namespace, object.Name)
	if apierrors.IsNotFound(err) || err == nil && now.UID != object.UID {
		return apierrors.NewNotFound(r.GroupResource(), object.Name)
	}
	return nil
}

// awaitGone waits until the collector has observed the deletion of an object.
func (q *question) awaitGone(ctx context.Context, id types.UID) error {
	return q.until(ctx, func() (gone bool) {
		q.Collector.View(func(g *graph.Graph) {
			_, exists := g.Object(id)
			gone = !exists
		})
		return gone
	}, fmt.Sprintf("the garbage collector has not yet observed the deletion of the object with the UID %s; try again", id))
}

// until polls until done returns true. After observeLimit it returns an error with the message
// otherwise.
func (q *question) until(ctx context.Context, done func() bool, otherwise string) error {
	if done() {
		return nil
	}
	ticker := q.Clock.NewTicker(observeEvery)
	defer ticker.Stop()
	for deadline := q.Clock.Now().Add(observeLimit); q.Clock.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
		if done() {
			return nil
		}
	}
	return apierrors.NewServiceUnavailable(otherwise)
}

func (q *question) observed(object *metav1.PartialObjectMetadata) (seen graph.Object, ok bool) {
	q.Collector.View(func(g *graph.Graph) { seen, ok = g.Object(object.UID) })
	if !ok {
		return seen, false
	}
	order, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, object.ResourceVersion)
	return seen, err == nil && order >= 0
}

// referenceOf returns a reference to an object.
func referenceOf(o graph.Object) ownership.ObjectReference {
	return ownership.ObjectReference{
		APIVersion: o.GroupVersion().String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
	}
}

// owners converts the references of a dependent in namespace. The standing of a reference is Hidden
// unless the caller may get the owner.
func (q *question) owners(ctx context.Context, namespace string, owners []graph.Owner) []ownership.OwnerReference {
	var out []ownership.OwnerReference
	for _, o := range owners {
		out = append(out, ownership.OwnerReference{OwnerReference: o.OwnerReference, Standing: q.standing(ctx, namespace, o)})
	}
	return out
}

func (q *question) standing(ctx context.Context, namespace string, o graph.Owner) ownership.Standing {
	r, served := q.resource(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind())
	if !served {
		return apiStanding(o.Standing) // No object of the kind can be read, so nothing is to hide.
	}
	if !r.Namespaced {
		namespace = ""
	}
	if !q.access.mayGet(ctx, r, namespace, o.Name) {
		return ownership.StandingHidden
	}
	return apiStanding(o.Standing)
}

// apiStanding converts a standing of the graph to the API's.
func apiStanding(standing string) ownership.Standing {
	return ownership.Standing(strings.ToUpper(standing[:1]) + standing[1:])
}

// blocks converts what a deletion waits for. It hides objects that the caller may not get.
func (q *question) blocks(ctx context.Context, objects map[types.UID]graph.Object, blocks []graph.Block) []ownership.DeletionBlock {
	var out []ownership.DeletionBlock
	for _, b := range blocks {
		block := ownership.DeletionBlock{Finalizer: b.Finalizer}
		for id, field := range map[types.UID]**ownership.ObjectReference{b.Dependent: &block.Dependent, b.Owner: &block.Owner} {
			if id != "" {
				q.refer(ctx, objects[id], field, &block.Hidden)
			}
		}
		out = append(out, block)
	}
	return out
}

// refer sets reference to an object if the caller may get it, and hidden otherwise.
func (q *question) refer(ctx context.Context, o graph.Object, reference **ownership.ObjectReference, hidden *bool) {
	if !q.access.mayGet(ctx, o.Resource, o.Namespace, o.Name) {
		*hidden = true
		return
	}
	named := referenceOf(o)
	*reference = &named
}
