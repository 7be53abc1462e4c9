// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// lineage identifies an undeletion, and knows which objects earlier and concurrent undeletions
// created in place of deleted ones: their successors. An object and its successors have the same
// origin and count as one object. The zero value and nil know no successors.
type lineage struct {
	// root and state identify the undeletion, as in its marks.
	root  types.UID
	state int64
	// restored has the objects that undeletions created, by UID; latest has the last one of each
	// origin.
	restored, latest map[types.UID]deletion.Restoration
	lost             []deletion.LostReference
}

// learn replaces the known successors.
func (l *lineage) learn(restored []deletion.Restoration, lost []deletion.LostReference) {
	l.restored, l.latest, l.lost = map[types.UID]deletion.Restoration{}, map[types.UID]deletion.Restoration{}, lost
	for _, r := range restored {
		l.restored[r.UID] = r
		if r.Revision >= l.latest[r.Origin].Revision {
			l.latest[r.Origin] = r
		}
	}
}

// origin returns the UID of the first object in an object's chain of successors.
func (l *lineage) origin(uid types.UID) types.UID {
	if l == nil {
		return uid
	}
	if r, found := l.restored[uid]; found {
		return r.Origin
	}
	return uid
}

// same reports whether two UIDs have the same origin.
func (l *lineage) same(a, b types.UID) bool { return l.origin(a) == l.origin(b) }

// last returns the UID of an object's latest successor, or its own if it has none.
func (l *lineage) last(uid types.UID) types.UID {
	if l != nil {
		if r, found := l.latest[l.origin(uid)]; found {
			return r.UID
		}
	}
	return uid
}

// has reports whether an object has a successor, or is one.
func (l *lineage) has(uid types.UID) bool { return l.last(uid) != uid || l.created(uid) }

// created reports whether an undeletion created an object.
func (l *lineage) created(uid types.UID) bool {
	if l == nil {
		return false
	}
	_, found := l.restored[uid]
	return found
}

// is reports whether an object is the one that had a UID, or its successor. A successor that is
// still on hold is not recorded yet and has only its mark.
func (l *lineage) is(object *unstructured.Unstructured, uid types.UID) bool {
	if l.same(object.GetUID(), uid) {
		return true
	}
	m, marked := markOf(object)
	return marked && l.same(m.From, uid)
}

// isBy reports whether this undeletion restored an object, in this or another request.
func (l *lineage) isBy(r deletion.Restoration) bool { return r.Root == l.root && r.State == l.state }

// isItself reports whether the current object of the item's name is the item or its successor.
func (i *Item) isItself() bool { return i.now != nil && i.lineage.is(i.now, i.FormerUID()) }

// wasReleased reports whether an earlier or concurrent request of the same undeletion has restored
// and released the item.
func (i *Item) wasReleased() bool {
	if i.now == nil || i.lineage == nil {
		return false
	}
	r, found := i.lineage.restored[i.UID()]
	return found && i.lineage.isBy(r) && i.lineage.same(i.UID(), i.FormerUID())
}

// loadLineage reads the recorded successors. It must be called after the objects are read, because
// objects are recorded before they are released.
func (u *undeletion) loadLineage(ctx context.Context) error {
	restored, lost, err := u.Records.Restored(ctx, u.Namespace)
	if err != nil {
		return err
	}
	u.lineage.learn(restored, lost)
	return nil
}

// loadRecorded reads which successors are recorded already. Call it before reading the objects: an
// object that is restored after that may be missing among them.
func (u *undeletion) loadRecorded(ctx context.Context) error {
	restored, _, err := u.Records.Restored(ctx, u.Namespace)
	u.recorded = map[types.UID]bool{}
	for _, r := range restored {
		u.recorded[r.UID] = true
	}
	return err
}

// hasConcurrent reports whether other undeletions have recorded successors since this one was
// planned.
func (u *undeletion) hasConcurrent(ctx context.Context) (bool, error) {
	restored, _, err := u.Records.Restored(ctx, u.Namespace)
	return err == nil && slices.ContainsFunc(restored, func(r deletion.Restoration) bool {
		return !u.recorded[r.UID] && !u.lineage.isBy(r)
	}), err
}

// recheckTaken checks the items whose name was taken when they were created: a concurrent
// undeletion may have restored and already released the other object.
func (u *undeletion) recheckTaken(ctx context.Context, items []*Item) error {
	isTaken := func(item *Item) bool { return item.Outcome == ownership.UndeletionTaken }
	if !slices.ContainsFunc(items, isTaken) {
		return nil
	}
	if err := u.loadLineage(ctx); err != nil {
		return err
	}
	for _, item := range items {
		switch {
		case !isTaken(item):
		case item.wasReleased():
			item.Outcome, item.Reason = ownership.UndeletionRestored, ""
		case item.isItself():
			item.Outcome, item.Reason = ownership.UndeletionAdopted, ""
		}
	}
	return nil
}

// member returns the item of an object or of one of its successors, or nil.
func (u *undeletion) member(uid types.UID) *Item { return u.members[u.lineage.origin(uid)] }

// index records the members of the graph, before reclaim adds other items.
func (u *undeletion) index() {
	u.members = map[types.UID]*Item{}
	for _, item := range u.items {
		u.members[u.lineage.origin(item.FormerUID())] = item
	}
}

// reclaim adds owner references that earlier undeletions could not restore: those to members of the
// graph, and those of members to objects that exist again.
func (u *undeletion) reclaim(ctx context.Context) error {
	added := map[types.UID]*Item{}
	for _, lost := range u.lineage.lost {
		dependent, owner := u.member(lost.UID), u.member(lost.Owner.UID)
		switch {
		case owner == nil && dependent != nil:
			dependent.reclaims = append(dependent.reclaims, lost)
			dependent.then = withOwner(dependent.then, lost.Owner, lost.Owner.UID)
		case owner != nil && dependent == nil:
			item := added[u.lineage.origin(lost.UID)]
			if item == nil {
				found, err := u.outsideOf(ctx, lost)
				if err != nil {
					return err
				}
				if found == nil {
					continue
				}
				item = found
				added[u.lineage.origin(lost.UID)] = item
				u.items = append(u.items, item)
				u.named[objectKey{item.kind(), item.Namespace(), item.Name()}] = item
			}
			item.reclaims = append(item.reclaims, lost)
			item.then = withOwner(item.then, lost.Owner, owner.FormerUID())
			item.owners = append(item.owners, owner)
		case owner != nil && dependent != nil:
			// The state that is restored may lack the reference: the orphaning of dependents
			// removed it when the owner was deleted.
			dependent.reclaims = append(dependent.reclaims, lost)
			dependent.then = withOwner(dependent.then, lost.Owner, owner.FormerUID())
			if owner != dependent && !slices.Contains(dependent.owners, owner) {
				dependent.owners = append(dependent.owners, owner)
			}
		}
	}
	if len(u.lineage.lost) > 0 {
		u.items = inOrder(u.items)
	}
	return nil
}

// outsideOf returns an item for an object outside of the graph that lost a reference; nil if the
// object does not exist.
func (u *undeletion) outsideOf(ctx context.Context, lost deletion.LostReference) (*Item, error) {
	for _, r := range u.Resources() {
		if r.GroupResource() != lost.Resource {
			continue
		}
		now, err := u.get(ctx, r.GroupVersionResource, lost.Namespace, lost.Name)
		if err != nil || now == nil || !u.lineage.is(now, lost.UID) {
			return nil, err
		}
		return &Item{Resource: r, then: now, now: now, lineage: u.lineage}, nil
	}
	return nil, nil
}

// withOwner returns an object with an additional owner reference, to a UID. A second controller is
// not added, since the API does not allow it.
func withOwner(object *unstructured.Unstructured, ref metav1.OwnerReference, uid types.UID) *unstructured.Unstructured {
	refs := object.GetOwnerReferences()
	if ref.Controller != nil && *ref.Controller && metav1.GetControllerOf(object) != nil {
		return object
	}
	if slices.ContainsFunc(refs, func(other metav1.OwnerReference) bool { return other.UID == uid }) {
		return object
	}
	ref.UID = uid
	object = object.DeepCopy()
	object.SetOwnerReferences(append(refs, ref))
	return object
}

// resolve replaces UIDs of deleted objects outside of the graph by those of their successors, in
// the objects to be created.
func (u *undeletion) resolve(ctx context.Context) error {
	if len(u.lineage.restored) == 0 {
		return nil
	}
	mentioned := map[types.UID]bool{}
	var mentioning []*Item
	for _, item := range u.items {
		if item.now != nil && !isRestored(item) {
			continue
		}
		found := map[types.UID]bool{}
		transplant.Mentions(item.then.Object, func(uid types.UID) bool { return u.lineage.has(uid) && u.member(uid) == nil }, found)
		if len(found) > 0 {
			mentioning = append(mentioning, item)
			maps.Copy(mentioned, found)
		}
	}
	for uid := range mentioned {
		successor, err := u.successor(ctx, uid)
		if err != nil {
			return err
		}
		if successor != "" {
			u.outside[uid], u.outside[successor] = successor, successor
		}
	}
	for _, item := range mentioning {
		then := &unstructured.Unstructured{Object: transplant.Remap(item.then.Object, u.outside).(map[string]any)}
		then.SetName(item.Name())
		then.SetNamespace(item.Namespace())
		item.then = then
	}
	return nil
}

// successor returns the UID of a deleted object's latest successor; "" if that does not exist. It
// reads the API, because the collector may not have observed the successor yet.
func (u *undeletion) successor(ctx context.Context, uid types.UID) (types.UID, error) {
	last := u.lineage.latest[u.lineage.origin(uid)]
	for _, r := range u.Resources() {
		if r.GroupResource() != last.Resource {
			continue
		}
		now, err := u.get(ctx, r.GroupVersionResource, last.Namespace, last.Name)
		if err != nil || now == nil || now.GetDeletionTimestamp() != nil || !u.lineage.is(now, uid) {
			return "", err
		}
		return now.GetUID(), nil
	}
	return "", nil
}

// keeps reports whether an item is restored with its reference to an owner outside of the graph: if
// the owner exists, or if the garbage collector cannot look it up. In the latter case the reference
// keeps the object from being collected, so it must stay.
func (u *undeletion) keeps(item *Item, ref metav1.OwnerReference) bool {
	if _, exists := u.Owner(ref.UID); exists || u.outside[ref.UID] != "" {
		return true
	}
	r, served := u.Served(groupKindOf(ref))
	return !served || r.Namespaced && item.Namespace() == ""
}

// lostOf returns the references that an item had and is restored without.
func (u *undeletion) lostOf(item *Item) (lost []metav1.OwnerReference) {
	for _, ref := range item.then.GetOwnerReferences() {
		at := slices.IndexFunc(item.owners, func(owner *Item) bool { return owner.FormerUID() == ref.UID })
		switch {
		case ref.UID == item.FormerUID():
		case at >= 0 && (item.owners[at].now != nil || isPending(item.owners[at])):
		case at < 0 && u.keeps(item, ref):
		default:
			lost = append(lost, ref)
		}
	}
	return lost
}

// reportLost explains which owners each item is restored without.
func (u *undeletion) reportLost() {
	for _, item := range u.items {
		if item.Outcome != ownership.UndeletionPending && item.Outcome != ownership.UndeletionRestored {
			continue
		}
		var owners []string
		for _, ref := range u.lostOf(item) {
			owners = append(owners, ref.Kind+" "+ref.Name)
		}
		var reason string
		switch len(owners) {
		case 0:
			continue
		case 1:
			reason = fmt.Sprintf("its owner %s does not exist: undelete the owner as well to restore the reference", owners[0])
		default:
			reason = fmt.Sprintf("its owners %s do not exist: undelete them as well to restore the references", strings.Join(owners, ", "))
		}
		if item.Reason != "" { // bind has explained what happens to its volume.
			reason = item.Reason + "; " + reason
		}
		item.Reason = reason
	}
}

// recordRestored records the successors and the references that could not be restored. It must be
// called before the first object is released, because until then marks identify the successors.
func (u *undeletion) recordRestored(ctx context.Context) error {
	var restored []deletion.Restoration
	var lost, found []deletion.LostReference
	now := metav1.NewMicroTime(u.Clock.Now())
	for _, item := range u.items {
		record := func(refs []metav1.OwnerReference) {
			for _, ref := range refs {
				lost = append(lost, deletion.LostReference{
					Resource: item.Resource.GroupResource(), Namespace: item.Namespace(), Name: item.Name(), UID: item.FormerUID(), Owner: ref,
				})
			}
		}
		switch {
		case isRestored(item):
			if !u.lineage.created(item.UID()) {
				restored = append(restored, deletion.Restoration{
					Resource: item.Resource.GroupResource(), Namespace: item.Namespace(), Name: item.Name(),
					UID: item.UID(), From: item.FormerUID(), Origin: u.lineage.origin(item.FormerUID()),
					Root: u.lineage.root, State: u.lineage.state, Time: now,
				})
			}
			record(u.lostOf(item))
		case item.deletedOnItsOwn:
			record(u.ownersThere(item))
		}
		for _, lost := range item.reclaims {
			if u.isReclaimed(item, lost) {
				found = append(found, lost)
			}
		}
	}
	if len(restored)+len(lost) > 0 {
		if err := u.Records.AddRestored(ctx, restored, lost); err != nil {
			return err
		}
	}
	if len(found) > 0 {
		return u.Records.ForgetLost(ctx, found)
	}
	return nil
}

// ownersThere returns the references of a left item to restored members of the graph. The item gets
// them back if it is undeleted later.
func (u *undeletion) ownersThere(item *Item) (refs []metav1.OwnerReference) {
	for _, ref := range item.then.GetOwnerReferences() {
		if slices.ContainsFunc(item.owners, func(owner *Item) bool {
			return owner.FormerUID() == ref.UID && owner.now != nil && owner.UID() != ref.UID
		}) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// isReclaimed reports whether a lost reference of an item is restored: both objects exist again.
func (u *undeletion) isReclaimed(item *Item, lost deletion.LostReference) bool {
	if owner := u.member(lost.Owner.UID); owner != nil {
		return item.now != nil && owner.now != nil
	}
	return item.now != nil && u.outside[lost.Owner.UID] != ""
}
