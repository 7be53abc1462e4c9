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

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// Fate is what a move does with an object of the graph.
type Fate string

const (
	// Moved: the object is copied to the target and removed at the source.
	Moved Fate = "Move"
	// Remade: the object is not copied, because its controller moves and recreates it at the
	// target. It is removed at the source.
	Remade Fate = "Remake"
)

// Item is an object of the graph.
type Item struct {
	// Object is the object at the source; only its metadata if it is Remade.
	Object *unstructured.Unstructured
	Root   bool
	Fate   Fate
	// Outside are the owners that are not part of the graph, or are Remade.
	Outside []metav1.OwnerReference
	// Late are the UIDs of owners that come after the item, because they are in a cycle.
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

// short names an object as kubectl does: deployment.apps/web.
func short(kind schema.GroupKind, name string) string {
	return strings.ToLower(kind.String()) + "/" + name
}

func describe(object *unstructured.Unstructured) string {
	text := short(object.GroupVersionKind().GroupKind(), object.GetName())
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
	return slices.DeleteFunc(slices.Clone(g.Items), func(i *Item) bool { return i.Fate != Moved })
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

// atOrAbove reports whether an item, or one of its direct and indirect owners in the graph, is as asked.
func (g *Graph) atOrAbove(item *Item, is func(*Item) bool) bool {
	seen := map[*Item]bool{nil: true}
	for follow := []*Item{item}; len(follow) > 0; {
		next := follow[0]
		follow = follow[1:]
		if seen[next] {
			continue
		}
		if seen[next] = true; is(next) {
			return true
		}
		for _, uid := range ownerUIDs(next.Object) {
			follow = append(follow, g.byUID[uid])
		}
	}
	return false
}

func nameKey(kind schema.GroupKind, namespace, name string) string {
	return kind.String() + " " + namespace + "/" + name
}

// moves reports whether the object of a kind and name is copied.
func (g *Graph) moves(kind schema.GroupKind, namespace, name string) bool {
	return g.names[nameKey(kind, namespace, name)]
}

// copied reports whether the object with a UID is copied.
func (g *Graph) copied(uid types.UID) bool {
	item, found := g.byUID[uid]
	return found && item.Fate == Moved
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

// Assemble returns the graph of its members.
func Assemble(objects []*unstructured.Unstructured, roots map[types.UID]bool) *Graph {
	g := &Graph{byUID: map[types.UID]*Item{}, names: map[string]bool{}}
	items := make([]*Item, 0, len(objects))
	for _, object := range objects {
		item := &Item{Object: object, Root: roots[object.GetUID()], Fate: Moved}
		items = append(items, item)
		g.byUID[object.GetUID()] = item
	}
	slices.SortFunc(items, func(a, b *Item) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	g.decideFates(items)
	for _, item := range items {
		if item.Fate == Moved {
			g.names[nameKey(item.kind(), item.Object.GetNamespace(), item.Object.GetName())] = true
		}
		for _, ref := range item.Object.GetOwnerReferences() {
			if !g.copied(ref.UID) {
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

// decideFates marks as Remade the objects that a controller of the graph recreates, and the objects
// that only such objects own.
func (g *Graph) decideFates(items []*Item) {
	for changed := true; changed; {
		changed = false
		for _, item := range items {
			if item.Fate == Moved && g.isRemade(item) {
				item.Fate, changed = Remade, true
			}
		}
	}
}

func (g *Graph) isRemade(item *Item) bool {
	if g.byUID[item.controller()] != nil && isRecreatable(item.Object) {
		return true
	}
	owners := ownerUIDs(item.Object)
	return !item.Root && len(owners) > 0 && !slices.ContainsFunc(owners, func(uid types.UID) bool {
		owner, found := g.byUID[uid]
		return !found || owner.Fate == Moved
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
	owners, others := map[*Item]map[types.UID]bool{}, map[*Item]map[types.UID]bool{}
	waiting := map[types.UID][]*Item{} // the items that wait for an object
	for _, item := range items {
		owners[item], others[item] = map[types.UID]bool{}, map[types.UID]bool{}
		for _, uid := range ownerUIDs(item.Object) {
			if g.byUID[uid] != nil && uid != item.UID() {
				owners[item][uid] = true
			}
		}
		if item.Fate == Moved {
			transplant.Mentions(item.Object.Object, func(uid types.UID) bool {
				return g.byUID[uid] != nil && uid != item.UID() && !owners[item][uid]
			}, others[item])
		}
		if class := g.classOf(item); class != nil {
			others[item][class.UID()] = true
		}
		for _, of := range []map[types.UID]bool{owners[item], others[item]} {
			for uid := range of {
				waiting[uid] = append(waiting[uid], item)
			}
		}
	}
	placed := map[*Item]bool{}
	var ready []*Item
	place := func(item *Item) {
		placed[item] = true
		g.Items = append(g.Items, item)
		for _, dependent := range waiting[item.UID()] {
			delete(owners[dependent], item.UID())
			delete(others[dependent], item.UID())
			if !placed[dependent] && len(owners[dependent])+len(others[dependent]) == 0 {
				ready = append(ready, dependent)
			}
		}
	}
	for _, item := range items {
		if len(owners[item])+len(others[item]) == 0 {
			ready = append(ready, item)
		}
	}
	for len(g.Items) < len(items) {
		if len(ready) > 0 {
			item := ready[0]
			ready = ready[1:]
			if !placed[item] {
				place(item)
			}
			continue
		}
		place(g.next(items, placed, owners))
	}
}

// classOf returns the ClusterClass that a Cluster is made from, or nil. It must exist when the Cluster does.
func (g *Graph) classOf(item *Item) *Item {
	if item.kind() != clusterapi.Cluster {
		return nil
	}
	class := classOf(item.Object)
	for _, other := range g.byUID {
		if namespace, name := other.name(); other.kind() == clusterapi.ClusterClass && class == (objectName{namespace, name}) {
			return other
		}
	}
	return nil
}

// next breaks a cycle: one of contained UIDs if possible, otherwise one of owners.
func (g *Graph) next(items []*Item, placed map[*Item]bool, owners map[*Item]map[types.UID]bool) *Item {
	var item *Item
	for _, candidate := range items {
		switch {
		case placed[candidate]:
		case len(owners[candidate]) == 0:
			return candidate
		case item == nil:
			item = candidate
		}
	}
	// The item may only depend on a cycle. Following its owners leads into one.
	for seen := map[*Item]bool{}; !seen[item]; {
		seen[item] = true
		item = g.byUID[slices.Min(slices.Collect(maps.Keys(owners[item])))]
	}
	item.Late = slices.Sorted(maps.Keys(owners[item]))
	return item
}

// cycle describes the ownership of an item whose owners come after it.
func (g *Graph) cycle(item *Item) string {
	var owners []string
	for _, uid := range item.Late {
		owners = append(owners, g.byUID[uid].String())
	}
	return fmt.Sprintf("%s is owned by %s, in a cycle", item, strings.Join(owners, " and "))
}
