// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// Action is what a move does with an object of the graph.
type Action string

const (
	// Moved: the object is copied to the target and removed at the source.
	Moved Action = "Move"
	// Remade: the object is not copied, because its controller moves and recreates it at the
	// target. It is removed at the source.
	Remade Action = "Remake"
)

// Item is an object of the graph.
type Item struct {
	// Object is the object at the source; only its metadata if it is Remade.
	Object *unstructured.Unstructured
	Root   bool
	Action Action
	// Outside are the references to owners that are not copied: they are not part of the graph, or
	// are Remade.
	Outside []metav1.OwnerReference
	// Late are the UIDs of the owners that come after the item in the order, because they are in a
	// cycle with it.
	Late []types.UID
}

func (i *Item) UID() types.UID          { return i.Object.GetUID() }
func (i *Item) kind() schema.GroupKind  { return i.Object.GroupVersionKind().GroupKind() }
func (i *Item) String() string          { return describe(i.Object) }
func (i *Item) name() (ns, name string) { return i.Object.GetNamespace(), i.Object.GetName() }
func (i *Item) controller() (uid types.UID) {
	if ref := metav1.GetControllerOfNoCopy(i.Object); ref != nil {
		return ref.UID
	}
	return ""
}

// kubectlName names an object as kubectl does: deployment.apps/web.
func kubectlName(kind schema.GroupKind, name string) string {
	return strings.ToLower(kind.String()) + "/" + name
}

// describe names an object and its namespace in a message.
func describe(object *unstructured.Unstructured) string {
	text := kubectlName(object.GroupVersionKind().GroupKind(), object.GetName())
	if object.GetNamespace() == "" {
		return text
	}
	return text + " in namespace " + object.GetNamespace()
}

// Graph is the graph of objects that moves: the roots and all their dependents.
type Graph struct {
	// Items are in the order in which they are copied: owners before dependents and, as far as
	// possible, objects before others that contain their UIDs.
	Items []*Item
	byUID map[types.UID]*Item
	names map[string]bool
}

// ID returns the ID of the move.
func (g *Graph) ID() string {
	var roots []types.UID
	for _, item := range g.Items {
		if item.Root {
			roots = append(roots, item.UID())
		}
	}
	return ID(roots)
}

// leavingRoots returns the roots that are being deleted.
func (g *Graph) leavingRoots() []*Item {
	return slices.DeleteFunc(slices.Clone(g.Items), func(i *Item) bool { return !i.Root || i.Object.GetDeletionTimestamp() == nil })
}

// moved returns the items to copy, in order.
func (g *Graph) moved() []*Item {
	return slices.DeleteFunc(slices.Clone(g.Items), func(i *Item) bool { return i.Action != Moved })
}

// dependents returns the items by the UIDs of their owners.
func (g *Graph) dependents() map[types.UID][]*Item {
	of := map[types.UID][]*Item{}
	for _, item := range g.Items {
		for _, uid := range ownerUIDs(item.Object) {
			of[uid] = append(of[uid], item)
		}
	}
	return of
}

// nameKey returns a map key for a kind, namespace and name.
func nameKey(kind schema.GroupKind, namespace, name string) string {
	return kind.String() + " " + namespace + "/" + name
}

// isCopiedName reports whether the object with a kind, namespace and name is copied.
func (g *Graph) isCopiedName(kind schema.GroupKind, namespace, name string) bool {
	return g.names[nameKey(kind, namespace, name)]
}

// isCopied reports whether the object with a UID is copied.
func (g *Graph) isCopied(uid types.UID) bool {
	item, found := g.byUID[uid]
	return found && item.Action == Moved
}

// Members returns the UIDs of the roots and their direct and indirect dependents among objects. It
// follows references by UID only.
func Members(objects []metav1.Object, roots map[types.UID]bool) map[types.UID]bool {
	dependents := map[types.UID][]types.UID{}
	present := map[types.UID]bool{}
	for _, object := range objects {
		present[object.GetUID()] = true
		for _, ref := range object.GetOwnerReferences() {
			dependents[ref.UID] = append(dependents[ref.UID], object.GetUID())
		}
	}
	members := map[types.UID]bool{}
	var follow []types.UID
	for uid := range roots {
		if present[uid] {
			follow = append(follow, uid)
		}
	}
	for len(follow) > 0 {
		uid := follow[len(follow)-1]
		follow = follow[:len(follow)-1]
		if !members[uid] {
			members[uid] = true
			follow = append(follow, dependents[uid]...)
		}
	}
	return members
}

// Assemble returns the graph of objects, which are the roots and all their dependents, in order.
func Assemble(objects []*unstructured.Unstructured, roots map[types.UID]bool) *Graph {
	g := &Graph{byUID: map[types.UID]*Item{}, names: map[string]bool{}}
	items := make([]*Item, 0, len(objects))
	for _, object := range objects {
		item := &Item{Object: object, Root: roots[object.GetUID()], Action: Moved}
		items = append(items, item)
		g.byUID[object.GetUID()] = item
	}
	slices.SortFunc(items, func(a, b *Item) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	g.decideActions(items)
	for _, item := range items {
		if item.Action == Moved {
			g.names[nameKey(item.kind(), item.Object.GetNamespace(), item.Object.GetName())] = true
		}
		for _, ref := range item.Object.GetOwnerReferences() {
			if !g.isCopied(ref.UID) {
				item.Outside = append(item.Outside, ref)
			}
		}
	}
	g.order(items)
	return g
}

func sortKey(i *Item) string {
	namespace, name := i.name()
	return strings.Join([]string{namespace, i.kind().String(), name}, " ")
}

// decideActions marks as Remade the objects that a controller of the graph recreates, and the objects
// that only such objects own.
func (g *Graph) decideActions(items []*Item) {
	for changed := true; changed; {
		changed = false
		for _, item := range items {
			if item.Action == Moved && g.isRemade(item) {
				item.Action, changed = Remade, true
			}
		}
	}
}

// isRemade reports whether a controller of the graph recreates the item, or all its owners are
// Remade. A root that only Remade objects own is moved.
func (g *Graph) isRemade(item *Item) bool {
	if g.byUID[item.controller()] != nil && isRecreatable(item.Object) {
		return true
	}
	owners := ownerUIDs(item.Object)
	return !item.Root && len(owners) > 0 && !slices.ContainsFunc(owners, func(uid types.UID) bool {
		owner, found := g.byUID[uid]
		return !found || owner.Action == Moved
	})
}

// isRecreatable reports whether an object's controller will recreate it in another cluster: pods,
// which cannot move, and objects that are derived from others.
func isRecreatable(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Pod"} || transplant.IsDerived(object)
}

// order fills g.Items. Owners come before their dependents, except in a cycle. An object that
// contains another one's UID comes after it where possible; otherwise the UID is replaced when both
// exist.
func (g *Graph) order(items []*Item) {
	s := newSorter(g, items)
	for len(g.Items) < len(items) {
		if len(s.ready) == 0 {
			s.place(s.breakCycle())
			continue
		}
		item := s.ready[0]
		s.ready = s.ready[1:]
		if !s.placed[item] {
			s.place(item)
		}
	}
}

// sorter sorts the items of a graph topologically.
type sorter struct {
	graph *Graph
	items []*Item
	// owners and mentioned have the UIDs of the items that an item waits for until they are placed:
	// its owners, and the other items whose UIDs it contains.
	owners, mentioned map[*Item]map[types.UID]bool
	// waiting has the items that wait for the item with a UID.
	waiting map[types.UID][]*Item
	// ready are items that wait for no other. placed are those in graph.Items.
	ready  []*Item
	placed map[*Item]bool
}

func newSorter(g *Graph, items []*Item) *sorter {
	s := &sorter{
		graph: g, items: items, placed: map[*Item]bool{}, waiting: map[types.UID][]*Item{},
		owners: map[*Item]map[types.UID]bool{}, mentioned: map[*Item]map[types.UID]bool{},
	}
	for _, item := range items {
		owners, mentioned := map[types.UID]bool{}, map[types.UID]bool{}
		for _, uid := range ownerUIDs(item.Object) {
			if g.byUID[uid] != nil && uid != item.UID() {
				owners[uid] = true
			}
		}
		if item.Action == Moved {
			transplant.Mentions(item.Object.Object, func(uid types.UID) bool {
				return g.byUID[uid] != nil && uid != item.UID() && !owners[uid]
			}, mentioned)
		}
		for _, uids := range []map[types.UID]bool{owners, mentioned} {
			for uid := range uids {
				s.waiting[uid] = append(s.waiting[uid], item)
			}
		}
		s.owners[item], s.mentioned[item] = owners, mentioned
		if s.isReady(item) {
			s.ready = append(s.ready, item)
		}
	}
	return s
}

func (s *sorter) isReady(item *Item) bool { return len(s.owners[item])+len(s.mentioned[item]) == 0 }

// place makes an item the next one in the order.
func (s *sorter) place(item *Item) {
	s.placed[item] = true
	s.graph.Items = append(s.graph.Items, item)
	for _, waiting := range s.waiting[item.UID()] {
		delete(s.owners[waiting], item.UID())
		delete(s.mentioned[waiting], item.UID())
		if !s.placed[waiting] && s.isReady(waiting) {
			s.ready = append(s.ready, waiting)
		}
	}
}

// breakCycle returns an item to place although it waits: one that waits only for items whose UIDs it
// contains, if possible, and otherwise one in a cycle of owners.
func (s *sorter) breakCycle() *Item {
	var item *Item
	for _, candidate := range s.items {
		switch {
		case s.placed[candidate]:
		case len(s.owners[candidate]) == 0:
			return candidate
		case item == nil:
			item = candidate
		}
	}
	// The item may only depend on a cycle. Following its owners leads into one.
	for seen := map[*Item]bool{}; !seen[item]; {
		seen[item] = true
		item = s.graph.byUID[slices.Min(slices.Collect(maps.Keys(s.owners[item])))]
	}
	item.Late = slices.Sorted(maps.Keys(s.owners[item]))
	return item
}

// cycle describes the cycle of an item with Late owners.
func (g *Graph) cycle(item *Item) string {
	var owners []string
	for _, uid := range item.Late {
		owners = append(owners, g.byUID[uid].String())
	}
	return fmt.Sprintf("%s is owned by %s, in a cycle", item, strings.Join(owners, " and "))
}
