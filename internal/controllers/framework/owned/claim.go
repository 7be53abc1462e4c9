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

// Claim decides which of the listed children belong to one controller, by the
// ControllerRef rules (controller-ref design, garbage collection API):
//   - controlled by someone else: never touched, whatever the selectors say;
//   - controlled by Controller and matching: its own;
//   - controlled by Controller, no longer matching: released;
//   - an orphan that matches and lives: adopted.
//
// A controller that is itself being deleted neither adopts nor releases.
type Claim[T client.Object] struct {
	Controller client.Object
	Kind       schema.GroupVersionKind
	Selector   labels.Selector
	// Finalizer, if there is one, is what the controller's children carry: it comes
	// with adoption and goes with release.
	Finalizer string
	// Client writes; Live reads past the cache.
	Client client.Client
	Live   client.Reader
	// Ledger remembers the patches.
	Ledger *Ledger[T]
	// Copy returns a deep copy, to patch without touching the cache.
	Copy func(T) T
}

// Filter returns the children that the controller owns when it returns, in the
// order given. An error means that an adoption or a release failed; the caller
// must not act on a partial view and should try again.
func (c Claim[T]) Filter(ctx context.Context, children []T) ([]T, error) {
	var mine []T
	var errs []error
	mayAdopt := c.recheck()
	for _, child := range children {
		ref := metav1.GetControllerOfNoCopy(child)
		matches := c.Selector.Matches(labels.Set(child.GetLabels()))
		switch {
		case ref != nil && ref.UID != c.Controller.GetUID():
		case ref != nil && matches:
			mine = append(mine, child)
		case c.Controller.GetDeletionTimestamp() != nil:
		case ref != nil:
			errs = append(errs, c.release(ctx, child))
		case matches && child.GetDeletionTimestamp() == nil:
			adopted, err := c.adopt(ctx, child, mayAdopt)
			if err == nil {
				mine = append(mine, adopted)
			}
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	return mine, errors.Join(errs...)
}

// recheck returns a function that asks the API, once, whether the controller
// still exists and lives. Without it a controller that was deleted a moment
// ago, but is still in the cache, could adopt what the collector just orphaned.
func (c Claim[T]) recheck() func(context.Context) error {
	var asked bool
	var answer error
	return func(ctx context.Context) error {
		if !asked {
			asked, answer = true, c.live(ctx)
		}
		return answer
	}
}

func (c Claim[T]) live(ctx context.Context) error {
	fresh := c.Controller.DeepCopyObject().(client.Object)
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(c.Controller), fresh); err != nil {
		return err
	}
	if fresh.GetUID() != c.Controller.GetUID() {
		return fmt.Errorf("original %s %s/%s is gone: got uid %s, wanted %s", c.Kind.Kind,
			c.Controller.GetNamespace(), c.Controller.GetName(), fresh.GetUID(), c.Controller.GetUID())
	}
	if fresh.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s/%s has just been deleted at %v", fresh.GetNamespace(), fresh.GetName(), fresh.GetDeletionTimestamp())
	}
	return nil
}

func (c Claim[T]) adopt(ctx context.Context, child T, mayAdopt func(context.Context) error) (T, error) {
	if err := mayAdopt(ctx); err != nil {
		return child, fmt.Errorf("can't adopt %s/%s (%s): %w", child.GetNamespace(), child.GetName(), child.GetUID(), err)
	}
	// The API refuses the patch if another controller was faster.
	return c.patchOwners(ctx, child, metav1.NewControllerRef(c.Controller, c.Kind), "finalizers")
}

func (c Claim[T]) release(ctx context.Context, child T) error {
	_, err := c.patchOwners(ctx, child, map[string]any{"$patch": "delete", "uid": c.Controller.GetUID()},
		"$deleteFromPrimitiveList/finalizers")
	// Invalid: the child has a new uid, or has lost the reference already.
	if apierrors.IsInvalid(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// patchOwners merges one entry into the child's ownerReferences, and in the same write
// the finalizer under the given directive; the uid makes sure that a new object of the
// same name is left alone.
func (c Claim[T]) patchOwners(ctx context.Context, child T, entry any, finalizers string) (T, error) {
	metadata := map[string]any{"uid": child.GetUID(), "ownerReferences": []any{entry}}
	if c.Finalizer != "" {
		metadata[finalizers] = []string{c.Finalizer}
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return child, err
	}
	patched := c.Copy(child)
	if err := c.Client.Patch(ctx, patched, client.RawPatch(types.StrategicMergePatchType, body)); err != nil {
		return child, err
	}
	c.Ledger.Wrote(c.Controller, patched)
	return patched, nil
}

// IgnoreStale drops the errors that only say that the cache is behind: the
// object was changed or deleted by someone, or its namespace is going. The
// event that tells so is on its way and wakes the controller, which then
// decides afresh; to try again before it comes would be of no use.
func IgnoreStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
