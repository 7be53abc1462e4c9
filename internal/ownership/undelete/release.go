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
	pollInterval = 10 * time.Millisecond
	pollLimit    = 10 * time.Second
)

// awaitCaches waits until the controllers' caches have all written objects, since a controller
// recreates what its cache lacks. It returns false if they do not in time.
func (u *undeletion) awaitCaches(ctx context.Context) (bool, error) {
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

// await polls until done returns true. It returns false after pollLimit, or when the time of the
// request is over.
func (u *undeletion) await(ctx context.Context, done func() bool) (bool, error) {
	ticker := u.Clock.NewTicker(pollInterval)
	defer ticker.Stop()
	for end := u.Clock.Now().Add(pollLimit); !done(); {
		if !u.Clock.Now().Before(end) || u.isLate() {
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

// release removes the holds, dependents first, so that the controller of an owner finds all its
// dependents released.
func (u *undeletion) release(ctx context.Context) (bool, error) {
	if u.stage != releasing {
		now, err := u.write(ctx, u.root, u.root.now, markReleasing, func(wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return u.client(wanted, u.root).Update(ctx, wanted, metav1.UpdateOptions{FieldManager: manager})
		})
		switch {
		case err != nil && isRetryable(err):
			u.postpone("%s: %v", u.root, err)
			return false, ctx.Err()
		case err != nil:
			return false, fmt.Errorf("%s: %w", u.root, err)
		}
		u.root.now = now
	}
	uids := u.uids()
	release := func(ctx context.Context, item *Item) attempt {
		if !isRestored(item) {
			return attempt{item.now, item.Outcome, nil}
		}
		now, err := u.releaseItem(ctx, item, uids)
		return attempt{now, item.Outcome, err}
	}
	rest := slices.Clone(u.items)
	slices.Reverse(rest)
	for items := range steps(rest) {
		if err := u.each(ctx, items, release); err != nil || u.isLate() || !u.isProceeding() {
			return false, err
		}
	}
	return true, nil
}

// markReleasing returns the root with the mark that the release has started, if it is on hold.
func markReleasing(now *unstructured.Unstructured) *unstructured.Unstructured {
	m, marked := markOf(now)
	if !marked {
		return now
	}
	m.Releasing = true
	object := now.DeepCopy()
	_ = unstructured.SetNestedField(object.Object, m.text(), "metadata", "annotations", ownership.HoldAnnotation)
	return object
}

// releaseItem removes the hold of an item, if the item still exists and is on hold. It returns the
// current object of the item's name.
func (u *undeletion) releaseItem(ctx context.Context, item *Item, uids map[types.UID]types.UID) (*unstructured.Unstructured, error) {
	now := item.now
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		body, err := json.Marshal(releasePatch(item, now, uids))
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
		if again == nil || !isRestorationOf(item, again) {
			return nil // Another client has deleted, replaced or released it.
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil // Another client has deleted it.
	}
	return now, err
}
