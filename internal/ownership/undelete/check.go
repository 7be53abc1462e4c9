// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// check finds what the API would reject, before anything is changed.
func (u *undeletion) check(ctx context.Context) error {
	if err := u.checkNamespace(ctx); err != nil {
		return err
	}
	if u.DryRun && u.root.kind() == definitionKind && !u.isServed(ctx) {
		u.warn("the custom resources are restored too; they are listed once the kind is served again")
	}
	if len(u.report.Problems) > 0 {
		return nil
	}
	return u.dryRun(ctx)
}

func (u *undeletion) problem(format string, args ...any) {
	u.report.Problems = append(u.report.Problems, fmt.Sprintf(format, args...))
}

func (u *undeletion) warn(format string, args ...any) {
	if warning := fmt.Sprintf(format, args...); !slices.Contains(u.report.Warnings, warning) {
		u.report.Warnings = append(u.report.Warnings, warning)
	}
}

func (u *undeletion) checkNamespace(ctx context.Context) error {
	if u.Namespace == "" {
		return nil
	}
	namespace, err := u.get(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), "", u.Namespace)
	if err != nil {
		return err
	}
	switch {
	case namespace == nil:
		u.problem("namespace %s does not exist: undelete it, which restores its content, or create it", u.Namespace)
	case namespace.GetDeletionTimestamp() != nil:
		u.problem("namespace %s is being deleted: undelete it once it is gone", u.Namespace)
	}
	return nil
}

// willBeWritten reports whether the undeletion writes an item.
func willBeWritten(item *Item) bool {
	switch item.Outcome {
	case ownership.UndeletionPending, ownership.UndeletionAdopted:
		return true
	case ownership.UndeletionRestored:
		return isRestored(item) // A released item is not written again.
	}
	return false
}

// dryRun creates all pending items as a dry run. It stops when half of the time is left, which is
// needed to create the items.
func (u *undeletion) dryRun(ctx context.Context) error {
	var mu sync.Mutex
	uids := u.uids()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range u.items {
		if item.Outcome != ownership.UndeletionPending || u.needsAnother(item) {
			continue
		}
		if u.lateFor(limit / 2) {
			u.warn("there are too many objects to try them all beforehand")
			break
		}
		group.Go(func() error {
			_, err := u.client(item.then, item).Create(ctx, u.desired(item, uids), metav1.CreateOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
			if err == nil || ctx.Err() != nil {
				return ctx.Err()
			}
			if apierrors.IsAlreadyExists(err) {
				return nil // Another request has created it. The real create handles that.
			}
			mu.Lock()
			defer mu.Unlock()
			if willBeReplaced(item) && isFinal(err) {
				item.Outcome, item.Reason = ownership.UndeletionLeft, cannotBeCreated(err)
				return nil
			}
			if isRetryable(err) {
				return nil // The real create tries again.
			}
			u.problem("%s cannot be created: %v", item, err)
			item.Outcome, item.Reason = ownership.UndeletionDenied, rejected
			return nil
		})
	}
	err := group.Wait()
	slices.Sort(u.report.Problems)
	for _, item := range u.items { // owners first
		if item != u.root && item.Outcome == ownership.UndeletionPending && isAbandoned(item) {
			item.Outcome, item.Reason = ownership.UndeletionLeft, abandoned(item)
		}
	}
	return err
}

// needsAnother reports whether an item cannot be created, even as a dry run, before another item:
// its namespace, the definition of its kind, or a pod's service account.
func (u *undeletion) needsAnother(item *Item) bool {
	if item != u.root && u.isContent(item) {
		return true
	}
	if item.kind() != podKind {
		return false
	}
	account, _, _ := unstructured.NestedString(item.then.Object, "spec", "serviceAccountName")
	other := u.named[objectKey{schema.GroupKind{Kind: "ServiceAccount"}, item.Namespace(), account}]
	return other != nil && other.Outcome == ownership.UndeletionPending
}
