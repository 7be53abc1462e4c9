// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// manager is the field manager of all writes until the release.
const manager = "kindred-undelete"

// restore creates the missing objects, owners first, and then adds missing owner references. It
// reports whether all objects are restored.
func (u *undeletion) restore(ctx context.Context) (bool, error) {
	uids := u.uids()
	restore := u.restorer(uids)
	for items := range steps(u.items) {
		if err := u.each(ctx, items, restore); err != nil || u.isLate() {
			return false, err
		}
		if err := u.recheckTaken(ctx, items); err != nil {
			return false, err
		}
		addUIDs(uids, items)
		switch u.root.Outcome {
		case ownership.UndeletionPending, ownership.UndeletionDenied:
			return false, nil // Nothing else can be restored without the root.
		case ownership.UndeletionTaken:
			// Nothing else was written, and without the root's mark the undeletion could not be
			// continued.
			u.problem("%s cannot be restored: %s", u.root, madeMeanwhile)
			return false, nil
		}
	}
	link := u.linker()
	for items := range steps(u.items) { // Step by step, so that owners are not written while they are read.
		if err := u.each(ctx, items, link); err != nil {
			return false, err
		}
	}
	if err := u.rebind(ctx); err != nil {
		return false, err
	}
	return u.isProceeding() && !u.isLate() && !slices.ContainsFunc(u.items, isPending), nil
}

func isPending(item *Item) bool { return item.Outcome == ownership.UndeletionPending }

// attempt is the result of an attempt to restore, link or release an item.
type attempt struct {
	now     *unstructured.Unstructured
	outcome ownership.UndeletionOutcome
	err     error
}

// each calls do for items, several at a time, and applies the results.
func (u *undeletion) each(ctx context.Context, items []*Item, do func(context.Context, *Item) attempt) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range items {
		if u.isLate() {
			break
		}
		group.Go(func() error {
			result := do(ctx, item)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			u.apply(item, result)
			return nil
		})
	}
	return group.Wait()
}

// apply updates an item and the report from the result of an attempt.
func (u *undeletion) apply(item *Item, result attempt) {
	item.Outcome = result.outcome
	item.setNow(result.now)
	switch {
	case result.err != nil && isRetryable(result.err):
		u.postpone("%s: %v", item, result.err)
	case errors.As(result.err, new(statusError)) && !hasEnded(item.then):
		u.warn("the status of %s could not be restored: %v", item, result.err)
	case result.err != nil && result.now == nil && willBeReplaced(item) && isFinal(result.err):
		item.Outcome, item.Reason = ownership.UndeletionLeft, cannotBeCreated(result.err)
	case result.err != nil:
		u.problem("%s: %v", item, result.err)
		if isPending(item) {
			item.Outcome, item.Reason = ownership.UndeletionDenied, rejected
		}
	case result.outcome == ownership.UndeletionTaken && item.Reason == "":
		item.Reason = madeMeanwhile
	case result.outcome == ownership.UndeletionLeft && item.Reason == "":
		item.Reason = abandoned(item)
	}
}

// isFinal reports whether an error means that an object cannot be created, now or later.
func isFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

const (
	rejected      = "the API rejects it"
	madeMeanwhile = "an object of this name was created in the meantime"
)

func cannotBeCreated(err error) string {
	return fmt.Sprintf("it cannot be created (%v), and its controller creates a replacement", err)
}

// uids maps former UIDs to current UIDs.
func (u *undeletion) uids() map[types.UID]types.UID {
	uids := maps.Clone(u.outside)
	if uids == nil {
		uids = map[types.UID]types.UID{}
	}
	addUIDs(uids, u.items)
	return uids
}

// addUIDs adds the UIDs of items whose UID has changed.
func addUIDs(uids map[types.UID]types.UID, items []*Item) {
	for _, item := range items {
		if item.now != nil && item.UID() != item.FormerUID() {
			uids[item.FormerUID()] = item.UID()
		}
	}
}

// restorer returns a function that restores an item, unless that is done. The function reads uids,
// which must not change while it runs.
func (u *undeletion) restorer(uids map[types.UID]types.UID) func(context.Context, *Item) attempt {
	return func(ctx context.Context, item *Item) attempt {
		now := item.now
		if item.Outcome == ownership.UndeletionPending && item != u.root && isAbandoned(item) {
			return attempt{nil, ownership.UndeletionLeft, nil}
		}
		if item.Outcome == ownership.UndeletionPending {
			created, err := u.client(item.then, item).Create(ctx, u.desired(item, uids), metav1.CreateOptions{FieldManager: manager})
			if apierrors.IsAlreadyExists(err) {
				return u.existing(ctx, item)
			}
			if err != nil {
				return attempt{nil, item.Outcome, err}
			}
			now = created
		} else if item.Outcome != ownership.UndeletionRestored || !isRestored(item) {
			return attempt{now, item.Outcome, nil}
		}
		now, err := u.putStatus(ctx, item, now, uids)
		return attempt{now, ownership.UndeletionRestored, err}
	}
}

// existing handles an item whose creation failed because an object of its name exists.
func (u *undeletion) existing(ctx context.Context, item *Item) attempt {
	now, err := u.get(ctx, item.Resource.GroupVersionResource, item.Namespace(), item.Name())
	if err != nil || now == nil {
		return attempt{nil, item.Outcome, err}
	}
	if isRestorationOf(item, now) {
		return attempt{now, ownership.UndeletionRestored, nil}
	}
	return attempt{now, ownership.UndeletionTaken, nil}
}

// statusError is a failed write of a status. The object itself is restored.
type statusError struct{ error }

func (e statusError) Unwrap() error { return e.error }

// putStatus writes an item's former status, if the status is restored for its kind.
func (u *undeletion) putStatus(ctx context.Context, item *Item, now *unstructured.Unstructured, uids map[types.UID]types.UID) (*unstructured.Unstructured, error) {
	status := statusOf(item.then)
	if status == nil {
		return now, nil
	}
	status, _ = transplant.Remap(status, uids).(map[string]any)
	transplant.ShiftGenerations(status, item.then.GetGeneration(), now.GetGeneration())
	now, err := u.write(ctx, item, now, func(now *unstructured.Unstructured) *unstructured.Unstructured {
		if !isRestorationOf(item, now) {
			return now // A concurrent request has released it.
		}
		wanted := now.DeepCopy()
		wanted.Object["status"] = status
		return wanted
	}, func(wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return u.client(wanted, item).UpdateStatus(ctx, wanted, metav1.UpdateOptions{FieldManager: manager})
	})
	if err != nil {
		return now, statusError{err}
	}
	return now, nil
}

// write updates an object to what want returns, and retries with the current object on a conflict.
// It returns the updated object.
func (u *undeletion) write(ctx context.Context, item *Item, now *unstructured.Unstructured, want func(now *unstructured.Unstructured) *unstructured.Unstructured, put func(wanted *unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		wanted := want(now)
		if equality.Semantic.DeepEqual(wanted.Object, now.Object) {
			return nil
		}
		updated, err := put(wanted)
		if err == nil {
			now = updated
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		again, failed := u.get(ctx, item.Resource.GroupVersionResource, item.Namespace(), item.Name())
		if failed != nil {
			return failed
		}
		if again == nil || again.GetUID() != now.GetUID() {
			return apierrors.NewNotFound(item.Resource.GroupResource(), item.Name())
		}
		now = again
		return err
	})
	return now, err
}

// linker returns a function that adds missing owner references to an item and replaces UIDs that
// were not known when the item was created.
func (u *undeletion) linker() func(context.Context, *Item) attempt {
	uids := u.uids()
	return func(ctx context.Context, item *Item) attempt {
		if item.Outcome != ownership.UndeletionAdopted && !isRestored(item) {
			return attempt{item.now, item.Outcome, nil}
		}
		now, err := u.write(ctx, item, item.now, func(now *unstructured.Unstructured) *unstructured.Unstructured {
			if isRestored(item) && !isRestorationOf(item, now) {
				return now // A concurrent request has released it.
			}
			return u.linked(item, now, uids)
		}, func(wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return u.client(wanted, item).Update(ctx, wanted, metav1.UpdateOptions{FieldManager: manager})
		})
		if apierrors.IsNotFound(err) {
			// A cascade has deleted it in the meantime. The next request restores it.
			return attempt{nil, ownership.UndeletionPending, nil}
		}
		return attempt{now, item.Outcome, err}
	}
}

// client returns the caller's client for an item's resource, in the version of an object.
func (u *undeletion) client(object *unstructured.Unstructured, item *Item) dynamic.ResourceInterface {
	r := object.GroupVersionKind().GroupVersion().WithResource(item.Resource.GroupVersionResource.Resource)
	return at(u.Caller, r, item.Namespace())
}
