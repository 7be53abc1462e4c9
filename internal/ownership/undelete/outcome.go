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
	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// ownDeletions returns the deletions of objects of the graph that clients requested after the
// deletion of the root and that are not part of its cascade.
func (u *undeletion) ownDeletions(ctx context.Context) (map[types.UID]deletion.Record, error) {
	if u.record.Revision == 0 {
		return nil, nil
	}
	requested, err := u.Records.Requested(ctx, u.record.Revision)
	if err != nil {
		return nil, err
	}
	items := map[types.UID]*Item{}
	for _, item := range u.items {
		items[item.FormerUID()] = item
	}
	// Every owner in the graph is the root or was deleted because of it. Only the root's policy can
	// orphan dependents.
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
	for _, r := range requested {
		item := items[r.UID]
		switch {
		case item == nil, item == u.root, follows(r):
		case u.isContent(item) && !r.By.IsPerson(): // A controller emptied the namespace or kind.
		default:
			own[r.UID] = r
		}
	}
	return own, nil
}

// decideOutcomes decides the outcome of each item, owners first, and returns the problems of items
// that prevent the undeletion.
func decideOutcomes(items []*Item, root *Item, own map[types.UID]deletion.Record, current stage) map[*Item]string {
	problems := map[*Item]string{}
	for _, item := range items {
		var problem string
		item.Outcome, item.Reason, problem = outcomeOf(item, root, own, current)
		if problem != "" {
			problems[item] = problem
		}
	}
	return problems
}

// outcomeOf decides the outcome of one item. If another object has the item's name, that is a problem
// before an undeletion has started; later the other object takes the item's place.
func outcomeOf(item, root *Item, own map[types.UID]deletion.Record, current stage) (outcome ownership.UndeletionOutcome, reason, problem string) {
	switch {
	case item.now == nil:
		outcome, reason, problem = outcomeOfDeleted(item, root, own)
	case isRestored(item) || item.wasReleased():
		return ownership.UndeletionRestored, "", ""
	case item.isItself():
		outcome, reason, problem = outcomeOfExisting(item)
	case current != fresh:
		return ownership.UndeletionTaken, madeMeanwhile, ""
	default:
		return ownership.UndeletionTaken, "", fmt.Sprintf("cannot be restored: another object has its name, created at %s", item.now.GetCreationTimestamp().UTC().Format(time.RFC3339))
	}
	if current != releasing {
		return outcome, reason, problem
	}
	// All objects existed once. One that was deleted since must not keep the others on hold.
	if outcome == ownership.UndeletionPending || problem != "" {
		return ownership.UndeletionLeft, "it was deleted again in the meantime", ""
	}
	return outcome, reason, ""
}

// isRestored reports whether this undeletion has restored an item and not yet released it.
func isRestored(item *Item) bool {
	return item.now != nil && isRestorationOf(item, item.now)
}

// isRestorationOf reports whether an object is the restored item of this undeletion, on hold.
func isRestorationOf(item *Item, object *unstructured.Unstructured) bool {
	m, marked := markOf(object)
	return marked && m.From == item.FormerUID() && item.lineage != nil && m.Root == item.lineage.root
}

// outcomeOfDeleted decides about an item that does not exist.
func outcomeOfDeleted(item, root *Item, own map[types.UID]deletion.Record) (outcome ownership.UndeletionOutcome, reason, problem string) {
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
	case transplant.IsDerived(item.then):
		return ownership.UndeletionLeft, "its controller recreates it", ""
	}
	if isAbandoned(item) {
		return ownership.UndeletionLeft, abandoned(item), ""
	}
	return ownership.UndeletionPending, "", ""
}

// isAbandoned reports whether an item had owners and none of them is restored.
func isAbandoned(item *Item) bool {
	return len(item.owners) > 0 && !slices.ContainsFunc(item.owners, isNotLeft)
}

func abandoned(item *Item) string {
	return fmt.Sprintf("its owner %s is not restored", item.owners[0])
}

// ReasonFor returns the reason of the item's outcome. It names other objects only if may returns
// true for them.
func (i *Item) ReasonFor(may func(*Item) bool) string {
	reason := i.Reason
	if len(i.owners) > 0 && reason == abandoned(i) && !may(i.owners[0]) {
		reason = "its owner is not restored"
	}
	if i.afterword != "" {
		reason += "; " + i.afterword
	}
	return reason
}

func isLeft(item *Item) bool    { return item.Outcome == ownership.UndeletionLeft }
func isNotLeft(item *Item) bool { return !isLeft(item) }

// outcomeOfExisting decides about an item that still exists.
func outcomeOfExisting(item *Item) (outcome ownership.UndeletionOutcome, reason, problem string) {
	other := otherController(item)
	switch {
	case item.now.GetDeletionTimestamp() == nil && other != nil:
		return ownership.UndeletionLeft, fmt.Sprintf("it exists, and %s %s controls it now", other.Kind, other.Name), ""
	case item.now.GetDeletionTimestamp() == nil && lacksOwner(item):
		return ownership.UndeletionAdopted, "", ""
	case item.now.GetDeletionTimestamp() == nil:
		return ownership.UndeletionUnchanged, "", ""
	case willBeReplaced(item):
		return ownership.UndeletionLeft, "it is still being deleted, and its controller creates a replacement", ""
	}
	return ownership.UndeletionLeft, "", "is still being deleted; wait until it is gone (\"kindred why\" says what it waits for)"
}

// otherController returns the controller that has replaced the former controller of an object that
// still exists, or nil.
func otherController(item *Item) *metav1.OwnerReference {
	was, is := metav1.GetControllerOf(item.then), metav1.GetControllerOf(item.now)
	if was == nil || is == nil || item.lineage.same(was.UID, is.UID) {
		return nil
	}
	if slices.ContainsFunc(item.owners, func(owner *Item) bool { return owner.FormerUID() == was.UID && owner.UID() == is.UID }) {
		return nil // The former controller's successor controls the object already.
	}
	return is
}

// lacksOwner reports whether an existing object lacks a reference to the new UID of an owner that
// is restored.
func lacksOwner(item *Item) bool {
	return slices.ContainsFunc(item.owners, func(owner *Item) bool {
		if isLeft(owner) || owner.UID() == owner.FormerUID() || !owns(owner, item) {
			return false // The owner was never deleted, so its UID is the same.
		}
		return !slices.ContainsFunc(item.now.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return owner.UID() != "" && ref.UID == owner.UID() })
	})
}

// owns reports whether an item had an owner reference to owner, rather than being its content.
func owns(owner, item *Item) bool {
	return slices.ContainsFunc(item.then.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner.FormerUID() })
}

// willBeReplaced reports whether an item is a pod whose controller is in the graph and will create
// a replacement.
func willBeReplaced(item *Item) bool {
	ref := metav1.GetControllerOfNoCopy(item.then)
	return ref != nil && item.kind() == podKind && slices.ContainsFunc(item.owners, func(owner *Item) bool { return owner.FormerUID() == ref.UID && isNotLeft(owner) })
}

var podKind = schema.GroupKind{Kind: "Pod"}
