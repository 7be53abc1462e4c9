// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"golang.org/x/sync/errgroup"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

var (
	namespaceKind  = schema.GroupKind{Kind: "Namespace"}
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

// ephemeral are resources whose objects describe a moment that is over: they are not restored.
var ephemeral = map[schema.GroupResource]bool{
	{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true,
	{Group: "coordination.k8s.io", Resource: "leases"}: true,
}

// read reads the graph at the revision: the root, its content if it is a namespace or a
// definition, and all their direct and indirect dependents.
func (u *undeletion) read(ctx context.Context) error {
	then, err := u.History.At(ctx, u.Resource.GroupResource(), u.Namespace, u.Name, u.revision)
	if err != nil {
		return err
	}
	if then.GetUID() != u.uid {
		return apierrors.NewConflict(u.Resource.GroupResource(), u.Name, fmt.Errorf("its hold says that it had the UID %s, but the history has another object of that name", u.uid))
	}
	u.root = newItem(u.Resource, then)
	var all []*Item
	for _, r := range u.Resources() {
		if !u.mayBelong(r) {
			continue
		}
		items, err := u.readAll(ctx, r)
		if err != nil {
			return err
		}
		all = append(all, items...)
	}
	found := members(u.root, all, u.isContent)
	u.named = map[objectKey]*Item{}
	for _, item := range found {
		item.lineage = u.lineage
		u.named[objectKey{item.kind(), item.Namespace(), item.Name()}] = item
	}
	for _, item := range found {
		if need, found := needOf(item.then); found && u.named[need.objectKey] != nil {
			item.needs = u.named[need.objectKey]
		}
	}
	u.items = inOrder(found)
	return nil
}

// mayBelong reports whether objects of a resource can be in the graph. Objects in a namespace own
// nothing outside of it.
func (u *undeletion) mayBelong(r graph.Resource) bool {
	if ephemeral[r.GroupResource()] {
		return false
	}
	inNamespace := u.Namespace != "" || u.root.kind() == namespaceKind
	return r.Namespaced || !inNamespace
}

func (u *undeletion) readAll(ctx context.Context, r graph.Resource) ([]*Item, error) {
	namespace := u.Namespace
	if u.root.kind() == namespaceKind {
		namespace = u.Name
	}
	var items []*Item
	for then, err := range u.History.List(ctx, r.GroupResource(), namespace, u.revision) {
		if apierrors.IsBadRequest(err) {
			return nil, nil // An aggregated API server stores the resource.
		}
		if err != nil {
			return nil, err
		}
		item := newItem(r, then)
		if len(then.GetOwnerReferences()) > 0 || u.isContent(item) {
			items = append(items, item)
		}
	}
	return items, nil
}

// isContent reports whether an object is content of the root: it is in the namespace, or is a
// custom resource of the definition.
func (u *undeletion) isContent(item *Item) bool {
	switch u.root.kind() {
	case namespaceKind:
		return item.Namespace() == u.Name
	case definitionKind:
		return item.Resource.GroupResource().String() == u.Name
	}
	return false
}

// members returns the root, its content, and their direct and indirect dependents, and sets the
// owners of each.
func members(root *Item, all []*Item, isContent func(*Item) bool) []*Item {
	dependents := map[types.UID][]*Item{}
	for _, item := range all {
		for _, ref := range item.then.GetOwnerReferences() {
			dependents[ref.UID] = append(dependents[ref.UID], item)
		}
	}
	found := []*Item{root}
	in := map[types.UID]*Item{root.FormerUID(): root}
	add := func(item *Item) {
		if in[item.FormerUID()] == nil {
			in[item.FormerUID()] = item
			found = append(found, item)
		}
	}
	for _, item := range all {
		if isContent(item) {
			add(item)
		}
	}
	for i := 0; i < len(found); i++ {
		for _, dependent := range dependents[found[i].FormerUID()] {
			if canOwn(found[i], dependent) {
				add(dependent)
			}
		}
	}
	for _, item := range found {
		for _, ref := range item.then.GetOwnerReferences() {
			if owner := in[ref.UID]; owner != nil && owner != item && canOwn(owner, item) {
				item.owners = append(item.owners, owner)
			}
		}
		if item != root && isContent(item) {
			item.owners = append(item.owners, root)
		}
	}
	return found
}

// canOwn reports whether a reference between two objects is valid: the owner must be
// cluster-scoped or in the dependent's namespace.
func canOwn(owner, dependent *Item) bool {
	return owner.Namespace() == "" || owner.Namespace() == dependent.Namespace()
}

// ranks orders kinds that other objects need without owning them before those that need them. Pods
// come last, because they need most.
var ranks = map[schema.GroupKind]int{
	namespaceKind: -3, definitionKind: -3,
	{Kind: "ServiceAccount"}: -2, {Kind: "Secret"}: -2, {Kind: "ConfigMap"}: -2, {Kind: "PersistentVolumeClaim"}: -2,
	{Kind: "Pod"}: 1,
}

// step is the position of an item in the order of restoration. Items with the same step are
// restored concurrently.
type step struct{ depth, rank int }

func (s step) compare(t step) int {
	return cmp.Or(cmp.Compare(s.depth, t.depth), cmp.Compare(s.rank, t.rank))
}

// steps returns the runs of items with the same step.
func steps(items []*Item) iter.Seq[[]*Item] {
	return func(yield func([]*Item) bool) {
		for rest := items; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].step == rest[0].step {
				n++
			}
			if !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// inOrder sorts the root first, owners before dependents, needed objects before those that need
// them, and the rest like siblings in a tree.
func inOrder(items []*Item) []*Item {
	depths := map[*Item]int{items[0]: 0}
	references := map[*Item]ownership.ObjectReference{}
	for _, item := range items {
		item.step = step{depthOf(item, depths), ranks[item.kind()]}
		references[item] = ownership.ObjectReference{
			APIVersion: item.then.GetAPIVersion(), Kind: item.then.GetKind(), Namespace: item.Namespace(), Name: item.Name(),
		}
	}
	slices.SortStableFunc(items, func(a, b *Item) int {
		if order := a.step.compare(b.step); order != 0 {
			return order
		}
		return references[a].Compare(references[b])
	})
	return items
}

// inProgress is the depth of an item while depthOf computes the depths of its owners. In a cycle it
// makes sure that no item comes before the root, and that no owner has the same depth as its
// dependent.
const inProgress = 0

func depthOf(item *Item, depths map[*Item]int) int {
	if depth, placed := depths[item]; placed {
		return depth
	}
	depths[item] = inProgress
	depth := 0
	for _, owner := range item.owners {
		depth = max(depth, depthOf(owner, depths)+1)
	}
	if item.needs != nil {
		depth = max(depth, depthOf(item.needs, depths)+1)
	}
	depths[item] = depth
	return depth
}

// workers is the number of objects that are read or written concurrently.
const workers = 16

// place is a resource in a namespace.
type place struct {
	schema.GroupVersionResource
	namespace string
}

const (
	// few is the number of objects in a place up to which they are read one by one rather than
	// listed.
	few  = 20
	page = 500
)

// readCurrent reads the current objects with the names of the graph.
func (u *undeletion) readCurrent(ctx context.Context) error {
	places := map[place][]*Item{}
	for _, item := range u.items {
		p := place{item.Resource.GroupVersionResource, item.Namespace()}
		places[p] = append(places[p], item)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for p, items := range places {
		if len(items) > few {
			group.Go(func() error { return u.listCurrent(ctx, p, items) })
			continue
		}
		for _, item := range items {
			group.Go(func() error {
				now, err := u.get(ctx, p.GroupVersionResource, p.namespace, item.Name())
				item.setNow(now)
				return err
			})
		}
	}
	return group.Wait()
}

// listCurrent lists a place and keeps the objects with the names of items.
func (u *undeletion) listCurrent(ctx context.Context, p place, items []*Item) error {
	named := map[string]*Item{}
	for _, item := range items {
		named[item.Name()] = item
	}
	for options := (metav1.ListOptions{Limit: page}); ; {
		list, err := at(u.Objects, p.GroupVersionResource, p.namespace).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil // The kind is not served.
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			if item := named[list.Items[i].GetName()]; item != nil {
				item.setNow(&list.Items[i])
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// get reads an object. It returns nil if there is none.
func (u *undeletion) get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	now, err := at(u.Objects, r, namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return now, err
}

// at returns the client of a resource in a namespace, which is "" for cluster-scoped resources.
func at(client dynamic.Interface, r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return client.Resource(r)
	}
	return client.Resource(r).Namespace(namespace)
}
