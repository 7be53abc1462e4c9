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

// manager is the name under which objects are written, until their release.
const manager = "kindred-undelete"

// restore creates what is gone, owners first, and then ties together what is there; false if
// something is not there yet.
func (u *undeletion) restore(ctx context.Context) (bool, error) {
	uids := u.uids()
	put := u.putter(uids)
	for items := range steps(u.items) {
		if err := u.each(ctx, items, put); err != nil || u.late() {
			return false, err
		}
		if err := u.recogniseTaken(ctx, items); err != nil {
			return false, err
		}
		addUIDs(uids, items)
		switch u.root.Outcome {
		case ownership.UndeletionPending, ownership.UndeletionDenied:
			return false, nil // There is nothing to go on with.
		case ownership.UndeletionTaken:
			// Nothing else was written. The mark, which another's object has not, is what
			// an undeletion goes on from.
			u.problem("%s cannot be brought back: %s", u.root, madeMeanwhile)
			return false, nil
		}
	}
	tie := u.tier()
	for items := range steps(u.items) { // What is read of owners is not written meanwhile.
		if err := u.each(ctx, items, tie); err != nil {
			return false, err
		}
	}
	if err := u.rebind(ctx); err != nil {
		return false, err
	}
	return u.goesOn() && !u.late() && !slices.ContainsFunc(u.items, isPending), nil
}

func isPending(item *Item) bool { return item.Outcome == ownership.UndeletionPending }

// done is what became of an item.
type done struct {
	now     *unstructured.Unstructured
	outcome ownership.UndeletionOutcome
	err     error
}

// each has something done with items, several at a time, and keeps what became of them.
func (u *undeletion) each(ctx context.Context, items []*Item, do func(context.Context, *Item) done) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range items {
		if u.late() {
			break
		}
		group.Go(func() error {
			became := do(ctx, item)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			u.keep(item, became)
			return nil
		})
	}
	return group.Wait()
}

func (u *undeletion) keep(item *Item, became done) {
	item.Outcome = became.outcome
	item.find(became.now)
	switch {
	case became.err != nil && isPassing(became.err):
		u.postpone("%s: %v", item, became.err)
	case errors.As(became.err, new(statusError)) && !hasEnded(item.then):
		u.warn("the status of %s is not what it was: %v", item, became.err)
	case became.err != nil && became.now == nil && isReplaced(item) && isFinal(became.err):
		item.Outcome, item.Reason = ownership.UndeletionLeft, cannotBeCreated(became.err)
	case became.err != nil:
		u.problem("%s: %v", item, became.err)
		if isPending(item) {
			item.Outcome, item.Reason = ownership.UndeletionDenied, denied
		}
	case became.outcome == ownership.UndeletionTaken && item.Reason == "":
		item.Reason = madeMeanwhile
	case became.outcome == ownership.UndeletionLeft && item.Reason == "":
		item.Reason = abandoned(item)
	}
}

// isFinal is whether an error says that an object does not exist, and will not.
func isFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

const (
	denied        = "the API refuses it"
	madeMeanwhile = "an object of this name was made meanwhile"
)

func cannotBeCreated(err error) string {
	return fmt.Sprintf("it cannot be created (%v), and its controller makes another", err)
}

// uids are the UIDs that objects had and have another one for now.
func (u *undeletion) uids() map[types.UID]types.UID {
	uids := maps.Clone(u.outside)
	if uids == nil {
		uids = map[types.UID]types.UID{}
	}
	addUIDs(uids, u.items)
	return uids
}

// addUIDs adds the UIDs of items that have another one now.
func addUIDs(uids map[types.UID]types.UID, items []*Item) {
	for _, item := range items {
		if item.now != nil && item.UID() != item.FormerUID() {
			uids[item.FormerUID()] = item.UID()
		}
	}
}

// putter brings items back, as far as that is not done yet. It reads uids, which must not change
// while items have their turn.
func (u *undeletion) putter(uids map[types.UID]types.UID) func(context.Context, *Item) done {
	return func(ctx context.Context, item *Item) done {
		now := item.now
		if item.Outcome == ownership.UndeletionPending && item != u.root && isAbandoned(item) {
			return done{nil, ownership.UndeletionLeft, nil}
		}
		if item.Outcome == ownership.UndeletionPending {
			created, err := u.client(item.then, item).Create(ctx, u.desired(item, uids), metav1.CreateOptions{FieldManager: manager})
			if apierrors.IsAlreadyExists(err) {
				return u.found(ctx, item)
			}
			if err != nil {
				return done{nil, item.Outcome, err}
			}
			now = created
		} else if item.Outcome != ownership.UndeletionRestored || !isRestored(item) {
			return done{now, item.Outcome, nil}
		}
		now, err := u.putStatus(ctx, item, now, uids)
		return done{now, ownership.UndeletionRestored, err}
	}
}

// found is what has the name of an item that was to be created.
func (u *undeletion) found(ctx context.Context, item *Item) done {
	now, err := u.get(ctx, item.Resource.GroupVersionResource, item.Namespace(), item.Name())
	if err != nil || now == nil {
		return done{nil, item.Outcome, err}
	}
	if stands(item, now) {
		return done{now, ownership.UndeletionRestored, nil}
	}
	return done{now, ownership.UndeletionTaken, nil}
}

// statusError is that a status could not be written. The object is there all the same.
type statusError struct{ error }

func (e statusError) Unwrap() error { return e.error }

// putStatus writes the status that an item had, where the kind's own memory is in it.
func (u *undeletion) putStatus(ctx context.Context, item *Item, now *unstructured.Unstructured, uids map[types.UID]types.UID) (*unstructured.Unstructured, error) {
	status := statusOf(item.then)
	if status == nil {
		return now, nil
	}
	status, _ = transplant.Remap(status, uids).(map[string]any)
	transplant.Observe(status, item.then.GetGeneration(), now.GetGeneration())
	now, err := u.write(ctx, item, now, func(now *unstructured.Unstructured) *unstructured.Unstructured {
		if !stands(item, now) {
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

// write makes of an object what is wanted, and again if somebody else has written to it
// meanwhile. It returns the object as it is then.
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

// tier gives objects the owners that they lack, and replaces UIDs that were not known yet
// when they were created.
func (u *undeletion) tier() func(context.Context, *Item) done {
	uids := u.uids()
	return func(ctx context.Context, item *Item) done {
		if item.Outcome != ownership.UndeletionAdopted && !isRestored(item) {
			return done{item.now, item.Outcome, nil}
		}
		now, err := u.write(ctx, item, item.now, func(now *unstructured.Unstructured) *unstructured.Unstructured {
			if isRestored(item) && !stands(item, now) {
				return now // A concurrent request has released it.
			}
			return u.tied(item, now, uids)
		}, func(wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return u.client(wanted, item).Update(ctx, wanted, metav1.UpdateOptions{FieldManager: manager})
		})
		if apierrors.IsNotFound(err) {
			// The cascade was faster. It is brought back next.
			return done{nil, ownership.UndeletionPending, nil}
		}
		return done{now, item.Outcome, err}
	}
}

// client writes to a resource in the version of an object.
func (u *undeletion) client(object *unstructured.Unstructured, item *Item) dynamic.ResourceInterface {
	r := object.GroupVersionKind().GroupVersion().WithResource(item.Resource.GroupVersionResource.Resource)
	return at(u.Caller, r, item.Namespace())
}
