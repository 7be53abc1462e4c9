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

// passing are resources that tell of a moment: what they told is over.
var passing = map[schema.GroupResource]bool{
	{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true,
	{Group: "coordination.k8s.io", Resource: "leases"}: true,
}

// read reads the graph as it was: the root and its content, if it is a namespace or the
// definition of a kind, and all that they own.
func (u *undeletion) read(ctx context.Context) error {
	then, err := u.History.At(ctx, u.Resource.GroupResource(), u.Namespace, u.Name, u.revision)
	if err != nil {
		return err
	}
	if then.GetUID() != u.uid {
		return apierrors.NewConflict(u.Resource.GroupResource(), u.Name, fmt.Errorf("its hold says that it had the UID %s, and the history knows another by its name", u.uid))
	}
	u.root = newItem(u.Resource, then)
	var all []*Item
	for _, r := range u.Resources() {
		if !u.mayBelong(r) {
			continue
		}
		there, err := u.readAll(ctx, r)
		if err != nil {
			return err
		}
		all = append(all, there...)
	}
	found := members(u.root, all, u.isContent)
	u.named = map[name]*Item{}
	for _, item := range found {
		item.lineage = u.lineage
		u.named[name{item.kind(), item.Namespace(), item.Name()}] = item
	}
	for _, item := range found {
		if need, found := needOf(item.then); found && u.named[need.name] != nil {
			item.needs = u.named[need.name]
		}
	}
	u.items = inOrder(found)
	return nil
}

// mayBelong is whether objects of a resource can be in the graph: those in a namespace own
// nothing outside of it.
func (u *undeletion) mayBelong(r graph.Resource) bool {
	if passing[r.GroupResource()] {
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
			return nil, nil // Not stored here: an aggregated server has it.
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

// isContent is whether an object goes with the root without being owned by it.
func (u *undeletion) isContent(item *Item) bool {
	switch u.root.kind() {
	case namespaceKind:
		return item.Namespace() == u.Name
	case definitionKind:
		return item.Resource.GroupResource().String() == u.Name
	}
	return false
}

// members are the root, its content, and what they own; each knows its owners among them.
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

// canOwn is whether a reference between two objects is followed: never out of a namespace.
func canOwn(owner, dependent *Item) bool {
	return owner.Namespace() == "" || owner.Namespace() == dependent.Namespace()
}

// ranks are the kinds that others need without being owned by them; pods come last, since
// they need most.
var ranks = map[schema.GroupKind]int{
	namespaceKind: -3, definitionKind: -3,
	{Kind: "ServiceAccount"}: -2, {Kind: "Secret"}: -2, {Kind: "ConfigMap"}: -2, {Kind: "PersistentVolumeClaim"}: -2,
	{Kind: "Pod"}: 1,
}

// step is when an item has its turn.
type step struct{ depth, rank int }

func (s step) compare(t step) int {
	return cmp.Or(cmp.Compare(s.depth, t.depth), cmp.Compare(s.rank, t.rank))
}

// steps are the runs of items that have their turn together.
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

// inOrder sorts the root before all, owners before dependents, objects that others need before the
// others, and the rest as siblings in a tree.
func inOrder(items []*Item) []*Item {
	depths := map[*Item]int{items[0]: 0}
	references := map[*Item]ownership.ObjectReference{}
	for _, item := range items {
		item.step = step{deepen(item, depths), ranks[item.kind()]}
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

// placing is the depth of an item whose owners are being placed: where they go round in
// a circle, nothing of it comes before the root. An owner and its dependent never have the same.
const placing = 0

func deepen(item *Item, depths map[*Item]int) int {
	if depth, placed := depths[item]; placed {
		return depth
	}
	depths[item] = placing
	depth := 0
	for _, owner := range item.owners {
		depth = max(depth, deepen(owner, depths)+1)
	}
	if item.needs != nil {
		depth = max(depth, deepen(item.needs, depths)+1)
	}
	depths[item] = depth
	return depth
}

// workers is how many objects are read or written at a time.
const workers = 16

// place is where objects of a resource are.
type place struct {
	schema.GroupVersionResource
	namespace string
}

const (
	// few objects of a place are read one by one, more by a list.
	few  = 20
	page = 500
)

// look reads what there is today under the names of the graph.
func (u *undeletion) look(ctx context.Context) error {
	places := map[place][]*Item{}
	for _, item := range u.items {
		here := place{item.Resource.GroupVersionResource, item.Namespace()}
		places[here] = append(places[here], item)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for here, items := range places {
		if len(items) > few {
			group.Go(func() error { return u.lookThrough(ctx, here, items) })
			continue
		}
		for _, item := range items {
			group.Go(func() error {
				now, err := u.get(ctx, here.GroupVersionResource, here.namespace, item.Name())
				item.find(now)
				return err
			})
		}
	}
	return group.Wait()
}

// lookThrough reads all that there is in a place, and keeps what is asked for.
func (u *undeletion) lookThrough(ctx context.Context, here place, items []*Item) error {
	named := map[string]*Item{}
	for _, item := range items {
		named[item.Name()] = item
	}
	for options := (metav1.ListOptions{Limit: page}); ; {
		list, err := at(u.Objects, here.GroupVersionResource, here.namespace).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil // The kind is not served.
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			if item := named[list.Items[i].GetName()]; item != nil {
				item.find(&list.Items[i])
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// get reads an object; nil if there is none.
func (u *undeletion) get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	now, err := at(u.Objects, r, namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return now, err
}

// at is the client of a resource in a namespace, "" for what has none.
func at(client dynamic.Interface, r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return client.Resource(r)
	}
	return client.Resource(r).Namespace(namespace)
}
