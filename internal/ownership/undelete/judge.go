// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
)

// ownDeletions are the deletions of objects that were asked for after that of the root, and
// are no part of its cascade.
func (u *undeletion) ownDeletions(ctx context.Context) (map[types.UID]deletion.Record, error) {
	if u.record.Revision == 0 {
		return nil, nil
	}
	asked, err := u.Records.Asked(ctx, u.record.Revision)
	if err != nil {
		return nil, err
	}
	items := map[types.UID]*Item{}
	for _, item := range u.items {
		items[item.FormerUID()] = item
	}
	// Every owner in the graph is the root or goes because of it; only the root's policy can let
	// dependents go.
	follows := func(r deletion.Record) bool {
		return slices.ContainsFunc(r.References, func(ref metav1.OwnerReference) bool {
			policy := metav1.DeletePropagationBackground
			if ref.UID == u.uid {
				policy = u.record.Policy
			}
			return items[ref.UID] != nil && r.Follows(policy)
		})
	}
	own := map[types.UID]deletion.Record{}
	for _, r := range asked {
		item := items[r.UID]
		switch {
		case item == nil, item == u.root, follows(r):
		case u.isContent(item) && !r.By.IsPerson(): // It was emptied.
		default:
			own[r.UID] = r
		}
	}
	return own, nil
}

// judge decides what becomes of the items of a graph, owners first, and returns what is wrong
// with those that stand in the way.
func judge(items []*Item, root *Item, own map[types.UID]deletion.Record, how stage) map[*Item]string {
	problems := map[*Item]string{}
	for _, item := range items {
		var problem string
		item.Outcome, item.Reason, problem = fate(item, root, own, how)
		if problem != "" {
			problems[item] = problem
		}
	}
	return problems
}

// fate decides about one item. What others have made under its name is in the way before an
// undeletion has begun, and takes the item's place from then on.
func fate(item, root *Item, own map[types.UID]deletion.Record, how stage) (outcome ownership.UndeletionOutcome, reason, problem string) {
	switch {
	case item.now == nil:
		outcome, reason, problem = gone(item, root, own)
	case isRestored(item) || item.wasReleased():
		return ownership.UndeletionRestored, "", ""
	case item.isItself():
		outcome, reason, problem = living(item)
	case how != fresh:
		return ownership.UndeletionTaken, madeMeanwhile, ""
	default:
		return ownership.UndeletionTaken, "", fmt.Sprintf("cannot be brought back: another object has its name, created at %s", item.now.GetCreationTimestamp().UTC().Format(time.RFC3339))
	}
	if how != releasing {
		return outcome, reason, problem
	}
	// Everything was there once. What has gone since, or goes, keeps nothing on hold.
	if outcome == ownership.UndeletionPending || problem != "" {
		return ownership.UndeletionLeft, "it was deleted again meanwhile", ""
	}
	return outcome, reason, ""
}

// isRestored reports whether an item was restored before by this undeletion, and not released yet.
func isRestored(item *Item) bool {
	return item.now != nil && stands(item, item.now)
}

// stands reports whether an object is what this undeletion restored an item as, on hold.
func stands(item *Item, object *unstructured.Unstructured) bool {
	m, marked := markOf(object)
	return marked && m.From == item.FormerUID() && item.lineage != nil && m.Root == item.lineage.root
}

// gone judges an item that is not there any more.
func gone(item, root *Item, own map[types.UID]deletion.Record) (outcome ownership.UndeletionOutcome, reason, problem string) {
	if item == root {
		return ownership.UndeletionPending, "", ""
	}
	if record, deleted := own[item.lineage.last(item.FormerUID())]; deleted && !followsNeed(item, record) {
		item.deletedOnItsOwn = true
		return ownership.UndeletionLeft, fmt.Sprintf("it was deleted on its own, by %s at %s", record.By.User, record.Time.UTC().Format(time.RFC3339)), ""
	}
	switch {
	case item.then.GetDeletionTimestamp() != nil:
		return ownership.UndeletionLeft, "it was already being deleted", ""
	case remade(item.then):
		return ownership.UndeletionLeft, "its controller makes it anew", ""
	}
	if isAbandoned(item) {
		return ownership.UndeletionLeft, abandoned(item), ""
	}
	return ownership.UndeletionPending, "", ""
}

// isAbandoned is whether none of an item's owners is brought back.
func isAbandoned(item *Item) bool {
	return len(item.owners) > 0 && !slices.ContainsFunc(item.owners, isNotLeft)
}

func abandoned(item *Item) string {
	return fmt.Sprintf("its owner %s is not brought back", item.owners[0])
}

// ReasonFor is the reason of an outcome, for those who may read the objects that may chooses.
func (i *Item) ReasonFor(may func(*Item) bool) string {
	if len(i.owners) > 0 && i.Reason == abandoned(i) && !may(i.owners[0]) {
		return "its owner is not brought back"
	}
	return i.Reason
}

func isLeft(item *Item) bool    { return item.Outcome == ownership.UndeletionLeft }
func isNotLeft(item *Item) bool { return !isLeft(item) }

// remade is whether an object says nothing that its controller does not know: it would come up
// twice.
func remade(object *unstructured.Unstructured) bool {
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Endpoints"}:
		return object.GetLabels()["endpoints.kubernetes.io/managed-by"] == "endpoint-controller"
	case schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:
		by := object.GetLabels()["endpointslice.kubernetes.io/managed-by"]
		return by == "endpointslice-controller.k8s.io" || by == "endpointslicemirroring-controller.k8s.io"
	}
	return false
}

// living judges an item that is still there.
func living(item *Item) (outcome ownership.UndeletionOutcome, reason, problem string) {
	other := otherController(item)
	switch {
	case item.now.GetDeletionTimestamp() == nil && other != nil:
		return ownership.UndeletionLeft, fmt.Sprintf("it is there, and %s %s controls it now", other.Kind, other.Name), ""
	case item.now.GetDeletionTimestamp() == nil && lacksOwner(item):
		return ownership.UndeletionAdopted, "", ""
	case item.now.GetDeletionTimestamp() == nil:
		return ownership.UndeletionUnchanged, "", ""
	case isReplaced(item):
		return ownership.UndeletionLeft, "it is still being deleted, and its controller makes another", ""
	}
	return ownership.UndeletionLeft, "", "is still being deleted; wait until it is gone (\"kindred why\" tells what for)"
}

// otherController is who has come to control an object that is still there, in place of its
// former controller.
func otherController(item *Item) *metav1.OwnerReference {
	was, is := metav1.GetControllerOf(item.then), metav1.GetControllerOf(item.now)
	if was == nil || is == nil || item.lineage.same(was.UID, is.UID) {
		return nil
	}
	if slices.ContainsFunc(item.owners, func(owner *Item) bool { return owner.FormerUID() == was.UID && owner.UID() == is.UID }) {
		return nil // It comes back, and has the object already.
	}
	return is
}

// lacksOwner is whether an object has lost an owner that comes back, or does not know it by
// its new UID.
func lacksOwner(item *Item) bool {
	return slices.ContainsFunc(item.owners, func(owner *Item) bool {
		if isLeft(owner) || owner.UID() == owner.FormerUID() || !owns(owner, item) {
			return false // An owner that was never gone is known to its dependents.
		}
		return !slices.ContainsFunc(item.now.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return owner.UID() != "" && ref.UID == owner.UID() })
	})
}

// owns is whether an item was another's owner, and not only had it as its content.
func owns(owner, item *Item) bool {
	return slices.ContainsFunc(item.then.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner.FormerUID() })
}

// isReplaced is whether a controller in the graph makes another pod where one is missing.
func isReplaced(item *Item) bool {
	ref := metav1.GetControllerOfNoCopy(item.then)
	return ref != nil && item.kind() == podKind && slices.ContainsFunc(item.owners, func(owner *Item) bool { return owner.FormerUID() == ref.UID && isNotLeft(owner) })
}

var podKind = schema.GroupKind{Kind: "Pod"}
