// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/retry"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

const (
	lookEvery = 10 * time.Millisecond
	lookLimit = 10 * time.Second
)

// settle waits until the controllers have seen all that was written: they must not make anew
// what they have not seen. False if they have not in time.
func (u *undeletion) settle(ctx context.Context) (bool, error) {
	newest := map[schema.GroupKind]string{}
	for _, item := range u.items {
		if item.Outcome != ownership.UndeletionRestored && item.Outcome != ownership.UndeletionAdopted {
			continue
		}
		version := item.now.GetResourceVersion()
		if order, err := resourceversion.CompareResourceVersion(newest[item.kind()], version); newest[item.kind()] == "" || err == nil && order < 0 {
			newest[item.kind()] = version
		}
	}
	return u.await(ctx, func() bool {
		for kind, version := range newest {
			if seen, _ := u.Seen(kind, version); !seen {
				return false
			}
		}
		return true
	})
}

// await looks until something is so, for a while, and no longer than the request may take.
func (u *undeletion) await(ctx context.Context, is func() bool) (bool, error) {
	ticker := u.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for end := u.Clock.Now().Add(lookLimit); !is(); {
		if !u.Clock.Now().Before(end) || u.late() {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-ticker.C():
		}
	}
	return true, nil
}

// release takes the holds off, dependents first, so that an owner finds them as they were.
func (u *undeletion) release(ctx context.Context) (bool, error) {
	if u.stage != releasing {
		now, err := u.write(ctx, u.root, u.root.now, beginning, func(wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return u.client(wanted, u.root).Update(ctx, wanted, metav1.UpdateOptions{FieldManager: manager})
		})
		switch {
		case err != nil && isPassing(err):
			u.postpone("%s: %v", u.root, err)
			return false, ctx.Err()
		case err != nil:
			return false, fmt.Errorf("%s: %w", u.root, err)
		}
		u.root.now = now
	}
	uids := u.uids()
	freeing := func(ctx context.Context, item *Item) done {
		if !isRestored(item) {
			return done{item.now, item.Outcome, nil}
		}
		now, err := u.letGo(ctx, item, uids)
		return done{now, item.Outcome, err}
	}
	rest := slices.Clone(u.items)
	slices.Reverse(rest)
	for items := range steps(rest) {
		if err := u.each(ctx, items, freeing); err != nil || u.late() || !u.goesOn() {
			return false, err
		}
	}
	return true, nil
}

// beginning is the root when its release begins, if it is on hold still.
func beginning(now *unstructured.Unstructured) *unstructured.Unstructured {
	m, marked := markOf(now)
	if !marked {
		return now
	}
	m.Releasing = true
	object := now.DeepCopy()
	_ = unstructured.SetNestedField(object.Object, m.text(), "metadata", "annotations", ownership.HoldAnnotation)
	return object
}

// letGo ends the hold of an item, if it is there still and on hold, and returns what is there.
func (u *undeletion) letGo(ctx context.Context, item *Item, uids map[types.UID]types.UID) (*unstructured.Unstructured, error) {
	now := item.now
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		body, err := json.Marshal(free(item, now, uids))
		if err != nil {
			return err
		}
		patched, err := u.client(now, item).Patch(ctx, item.Name(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager})
		switch {
		case err == nil:
			now = patched
			return nil
		case !apierrors.IsConflict(err):
			return err
		}
		again, failed := u.get(ctx, item.Resource.GroupVersionResource, item.Namespace(), item.Name())
		if failed != nil {
			return failed
		}
		now = again
		if again == nil || !stands(item, again) {
			return nil // Somebody has deleted it, put another in its place, or released it.
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil // Somebody has deleted it.
	}
	return now, err
}
