// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ControllerRefManager decides which of the listed children belong to one controller, by the
// ControllerRef rules (controller-ref design, garbage collection API):
//   - controlled by another object: ignored, whatever the selectors match;
//   - controlled by Controller and matching: kept;
//   - controlled by Controller and not matching: released;
//   - an orphan that matches and is not being deleted: adopted.
//
// A controller that is itself being deleted neither adopts nor releases.
type ControllerRefManager[T client.Object] struct {
	Controller client.Object
	Kind       schema.GroupVersionKind
	Selector   labels.Selector
	// Matches, if set, is a second condition beside the selector.
	Matches func(T) bool
	// Finalizer, if set, is added to a child when it is adopted and removed when it is
	// released.
	Finalizer string
	// Client writes; Live reads from the API.
	Client client.Client
	Live   client.Reader
	// Ledger records the patches.
	Ledger *Ledger[T]
	// Copy returns a deep copy, so that a patch does not modify the cache.
	Copy func(T) T
}

// Claim adopts and releases children, and returns the children that the controller then owns, in
// the order given. An error means that an adoption or a release has failed: the caller must not
// act on the partial list and should retry.
func (m ControllerRefManager[T]) Claim(ctx context.Context, children []T) ([]T, error) {
	var claimed []T
	var errs []error
	canAdopt := m.recheck()
	for _, child := range children {
		ref := metav1.GetControllerOfNoCopy(child)
		matches := m.Selector.Matches(labels.Set(child.GetLabels())) && (m.Matches == nil || m.Matches(child))
		switch {
		case ref != nil && ref.UID != m.Controller.GetUID():
		case ref != nil && matches:
			claimed = append(claimed, child)
		case m.Controller.GetDeletionTimestamp() != nil:
		case ref != nil:
			errs = append(errs, m.release(ctx, child))
		case matches && child.GetDeletionTimestamp() == nil:
			adopted, err := m.adopt(ctx, child, canAdopt)
			claimed = append(claimed, adopted...)
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	return claimed, errors.Join(errs...)
}

// recheck returns a function that checks in the API, once, that the controller exists
// and is not being deleted. Without it, a controller that was just deleted, but is still
// cached, could adopt objects that the garbage collector has just orphaned.
func (m ControllerRefManager[T]) recheck() func(context.Context) error {
	var checked bool
	var result error
	return func(ctx context.Context) error {
		if !checked {
			checked, result = true, m.checkLive(ctx)
		}
		return result
	}
}

func (m ControllerRefManager[T]) checkLive(ctx context.Context) error {
	fresh, err := reread(ctx, m.Live, m.Controller)
	if err != nil {
		return err
	}
	if fresh.GetUID() != m.Controller.GetUID() {
		return fmt.Errorf("original %s %s/%s is gone: got uid %s, wanted %s", m.Kind.Kind,
			m.Controller.GetNamespace(), m.Controller.GetName(), fresh.GetUID(), m.Controller.GetUID())
	}
	if fresh.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s/%s has just been deleted at %v", fresh.GetNamespace(), fresh.GetName(), fresh.GetDeletionTimestamp())
	}
	return nil
}

// adopt adopts a child if it is still what the cache has. If it has changed, the rules decide again: it may be deleted, or
// not match any more. adopt returns the child unless the controller does not own it then.
func (m ControllerRefManager[T]) adopt(ctx context.Context, child T, canAdopt func(context.Context) error) ([]T, error) {
	if err := canAdopt(ctx); err != nil {
		return nil, fmt.Errorf("can't adopt %s/%s (%s): %w", child.GetNamespace(), child.GetName(), child.GetUID(), err)
	}
	patch := ownersPatch{Version: child.GetResourceVersion(), Owner: metav1.NewControllerRef(m.Controller, m.Kind), Finalizers: "finalizers"}
	adopted, err := m.patchOwners(ctx, child, patch)
	if err == nil {
		return []T{adopted}, nil
	}
	if !apierrors.IsConflict(err) {
		return nil, err
	}
	fresh, err := reread(ctx, m.Live, child)
	if err != nil {
		return nil, err
	}
	return m.Claim(ctx, []T{fresh})
}

func (m ControllerRefManager[T]) release(ctx context.Context, child T) error {
	_, err := m.patchOwners(ctx, child, ownersPatch{
		Owner: map[string]any{"$patch": "delete", "uid": m.Controller.GetUID()}, Finalizers: "$deleteFromPrimitiveList/finalizers",
	})
	// Invalid: the child was replaced, or does not have the reference any more.
	if apierrors.IsInvalid(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// ownersPatch is a change of a child's ownerReferences.
type ownersPatch struct {
	Version    string // of the child, if it may not have changed
	Owner      any    // is merged into the ownerReferences
	Finalizers string // the directive under which the finalizer is merged in the same write
}

// patchOwners changes a child's ownerReferences. The UID in the patch protects a new object of the same name.
func (m ControllerRefManager[T]) patchOwners(ctx context.Context, child T, patch ownersPatch) (T, error) {
	metadata := map[string]any{"uid": child.GetUID(), "ownerReferences": []any{patch.Owner}}
	if patch.Version != "" {
		metadata["resourceVersion"] = patch.Version
	}
	if m.Finalizer != "" {
		metadata[patch.Finalizers] = []string{m.Finalizer}
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return child, err
	}
	patched := m.Copy(child)
	if err := m.Client.Patch(ctx, patched, client.RawPatch(types.StrategicMergePatchType, body)); err != nil {
		return child, err
	}
	m.Ledger.Wrote(m.Controller, patched)
	return patched, nil
}

// IgnoreStale drops the errors of a write that was based on a stale cache: the object was
// changed or deleted, or its namespace is terminating. The pending event wakes the
// controller, so a retry before it would be of no use.
func IgnoreStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
