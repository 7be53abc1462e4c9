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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

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

// await looks until something is so, for a while.
func (u *undeletion) await(ctx context.Context, is func() bool) (bool, error) {
	ticker := u.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for end := u.Clock.Now().Add(lookLimit); !is(); {
		if !u.Clock.Now().Before(end) {
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
		m, _ := markOf(u.root.now)
		m.Releasing = true
		patch := map[string]any{"metadata": map[string]any{"uid": string(u.root.UID()), "annotations": map[string]any{ownership.HoldAnnotation: m.text()}}}
		if err := u.patch(ctx, u.root, patch); err != nil {
			return false, fmt.Errorf("%s: %w", u.root, err)
		}
	}
	uids := u.uids()
	freeing := func(ctx context.Context, item *Item) done {
		if item.now == nil || !isRestored(item) {
			return done{item.now, item.Outcome, nil}
		}
		return done{item.now, item.Outcome, u.patch(ctx, item, free(item, uids))}
	}
	rest := slices.Clone(u.items)
	slices.Reverse(rest)
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && rest[n].step == rest[0].step {
			n++
		}
		if err := u.each(ctx, rest[:n], freeing); err != nil || u.late() || len(u.report.Problems) > 0 {
			return false, err
		}
		rest = rest[n:]
	}
	return true, nil
}

// patch writes to an object, if it is there still.
func (u *undeletion) patch(ctx context.Context, item *Item, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = u.client(item.now, item).Patch(ctx, item.Name(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // Somebody has deleted it, or put another in its place.
	}
	return err
}
