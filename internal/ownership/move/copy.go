// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// asStatus reports whether an error is an API server's Status, and sets status to it.
func asStatus(err error, status *apierrors.APIStatus) bool { return errors.As(err, status) }

// copy creates or updates the copies of all items that have changed since they were copied.
func (m *Mover) copy(ctx context.Context) error {
	items := m.graph.moved()
	var unfinished []*Item
	for i, item := range items {
		m.Progress(fmt.Sprintf("copying %d of %d: %s", i+1, len(items), item))
		if m.copied[item.UID()] == m.digestOf(item) {
			continue
		}
		complete, err := m.put(ctx, item)
		if err != nil {
			return err
		}
		if !complete {
			unfinished = append(unfinished, item)
			continue
		}
		m.copied[item.UID()] = m.digestOf(item)
	}
	// Now every new UID is known.
	for _, item := range unfinished {
		if _, err := m.put(ctx, item); err != nil {
			return err
		}
		m.copied[item.UID()] = m.digestOf(item)
	}
	m.report.Copied = len(items)
	return nil
}

// put creates or updates the copy of an item. The copy is complete if all new UIDs that the item
// needs were known.
func (m *Mover) put(ctx context.Context, item *Item) (complete bool, err error) {
	k, err := m.Target.served(ctx, item.Object)
	if err != nil {
		return false, err
	}
	complete = m.knowsAll(item)
	stored, err := m.store(ctx, item, k)
	if err != nil {
		return false, err
	}
	m.uids[item.UID()] = stored.GetUID()
	return complete, m.putStatus(ctx, item, k, stored)
}

// store creates a copy, or updates it if it is known to exist. A create of an existing object could
// be rejected by a quota.
func (m *Mover) store(ctx context.Context, item *Item, k kind) (*unstructured.Unstructured, error) {
	if m.uids[item.UID()] != "" {
		return m.updateExisting(ctx, item, k)
	}
	stored, err := m.create(ctx, m.desired(item, k))
	if apierrors.IsAlreadyExists(err) {
		return m.updateExisting(ctx, item, k)
	}
	return stored, err
}

// knowsAll reports whether the new UID of every UID of the graph that an item contains is known.
func (m *Mover) knowsAll(item *Item) bool {
	unknown := map[types.UID]bool{}
	isUnknown := func(uid types.UID) bool { return m.graph.copied(uid) && m.uids[uid] == "" }
	transplant.Mentions(Clean(item.Object, m.graph.moves).Object, isUnknown, unknown)
	transplant.Mentions(statusOf(item.Object), isUnknown, unknown)
	return len(unknown) == 0
}

// desired returns the copy to create for an item: cleaned, on hold, marked, and with the new UIDs
// as far as they are known.
func (m *Mover) desired(item *Item, k kind) *unstructured.Unstructured {
	object := Clean(item.Object, m.graph.moves)
	var owners []metav1.OwnerReference
	for _, ref := range object.GetOwnerReferences() {
		// A reference to an owner that does not exist yet would let the garbage collector delete
		// the copy.
		if uid, found := m.uids[ref.UID]; found {
			ref.UID = uid
			owners = append(owners, ref)
		}
	}
	namespace, name := item.name()
	object = &unstructured.Unstructured{Object: transplant.Remap(object.Object, m.uids).(map[string]any)}
	// Names stay, even a name that is a UID.
	object.SetName(name)
	object.SetNamespace(namespace)
	object.SetOwnerReferences(owners)
	own := mark{
		Move: m.plan.ID, For: short(item.kind(), name), from: item.UID(),
		APIVersion: item.Object.GetAPIVersion(), Digest: digest(item.Object, m.graph.moves),
	}
	own.Held = Hold(object, isSized(item.kind()) && m.graph.copied(item.controller()))
	_ = unstructured.SetNestedField(object.Object, own.text(), "metadata", "annotations", own.key())
	if !k.status {
		if status := statusOf(item.Object); status != nil {
			object.Object["status"] = transplant.Remap(status, m.uids)
		}
	}
	return object
}

func (m *Mover) create(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k, err := m.Target.served(ctx, object)
	if err != nil {
		return nil, err
	}
	stored, err := m.Target.objects(k, object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{FieldManager: manager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("%s: cannot create %s: %w", m.Target.Name, describe(object), err)
	}
	return stored, err
}

// updateExisting updates the existing object of an item's name, if it is a copy of the item.
func (m *Mover) updateExisting(ctx context.Context, item *Item, k kind) (stored *unstructured.Unstructured, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if stored, err = m.Target.get(ctx, item.Object); err != nil {
			return err
		}
		if stored == nil {
			return fmt.Errorf("%s: %s was deleted while it was being copied", m.Target.Name, item)
		}
		if !m.isCopy(markOf(stored), item) && !m.isMadeByCopy(stored) {
			return fmt.Errorf("%s: %s was created in the meantime and is not a copy", m.Target.Name, item)
		}
		m.uids[item.UID()] = stored.GetUID()
		desired := m.desired(item, k)
		if lacks(desired, stored) == "" {
			return nil
		}
		carryOver(desired, stored)
		updated, err := m.Target.objects(k, desired.GetNamespace()).Update(ctx, desired, metav1.UpdateOptions{FieldManager: manager})
		if err == nil {
			stored = updated
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot bring the copy of %s up to date: %w", item, err)
	}
	return stored, nil
}

// putStatus copies the status if it is a subresource, which a create ignores.
func (m *Mover) putStatus(ctx context.Context, item *Item, k kind, stored *unstructured.Unstructured) error {
	status := statusOf(item.Object)
	if status == nil || !k.status {
		return nil
	}
	status, _ = transplant.Remap(status, m.uids).(map[string]any)
	transplant.ShiftGenerations(status, item.Object.GetGeneration(), stored.GetGeneration())
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if missing(status, stored.Object["status"], "status") == "" {
			return nil
		}
		object := stored.DeepCopy()
		object.Object["status"] = status
		_, err := m.Target.objects(k, object.GetNamespace()).UpdateStatus(ctx, object, metav1.UpdateOptions{FieldManager: manager})
		if !apierrors.IsConflict(err) {
			return err
		}
		// Read the current object for the next attempt.
		latest, failed := m.Target.get(ctx, item.Object)
		if failed != nil || latest == nil {
			return errors.Join(err, failed)
		}
		stored = latest
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: cannot write the status of %s: %w", m.Target.Name, item, err)
	}
	return nil
}

// verify reads back and compares every copy, and keeps the copies for the later phases.
func (m *Mover) verify(ctx context.Context) error {
	m.copies = nil
	items := m.graph.moved()
	var wrong []string
	for i, item := range items {
		m.Progress(fmt.Sprintf("verifying %d of %d: %s", i+1, len(items), item))
		k, err := m.Target.served(ctx, item.Object)
		if err != nil {
			return err
		}
		stored, err := m.Target.get(ctx, item.Object)
		if err != nil {
			return err
		}
		if stored == nil || stored.GetUID() != m.uids[item.UID()] {
			wrong = append(wrong, item.String()+" does not exist")
			continue
		}
		if at := lacks(m.desired(item, k), stored); at != "" {
			wrong = append(wrong, fmt.Sprintf("%s differs in %s", item, at))
			continue
		}
		m.copies = append(m.copies, stored)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s does not have the copies as they were written, so nothing was removed: %s; another client there changes them", m.Target.Name, strings.Join(wrong, "; "))
	}
	return nil
}
