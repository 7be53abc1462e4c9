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

// check looks for what the API would refuse, before anything is changed.
func (u *undeletion) check(ctx context.Context) error {
	if err := u.checkNamespace(ctx); err != nil {
		return err
	}
	if u.DryRun && u.root.kind() == definitionKind && !u.isServed(ctx) {
		u.warn("the objects of the kind come back too; which they are can be told when it is served again")
	}
	if len(u.report.Problems) > 0 {
		return nil
	}
	return u.rehearse(ctx)
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
		u.problem("namespace %s is not there: undelete it, which brings back what was in it, or create it", u.Namespace)
	case namespace.GetDeletionTimestamp() != nil:
		u.problem("namespace %s is being deleted: undelete it once it is gone", u.Namespace)
	}
	return nil
}

// isWritten is whether something is done to an item.
func isWritten(item *Item) bool {
	switch item.Outcome {
	case ownership.UndeletionPending, ownership.UndeletionAdopted:
		return true
	case ownership.UndeletionRestored:
		return isRestored(item) // What is released already is not.
	}
	return false
}

// rehearse has the API create everything as a dry run; of very many objects as many as there is
// time for, for some has to be left to create them in.
func (u *undeletion) rehearse(ctx context.Context) error {
	var mu sync.Mutex
	uids := u.uids()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range u.items {
		if item.Outcome != ownership.UndeletionPending || u.needsAnother(item) {
			continue
		}
		if u.lateFor(limit / 2) {
			u.warn("not every object could be tried beforehand, as there are so many")
			break
		}
		group.Go(func() error {
			_, err := u.client(item.then, item).Create(ctx, u.desired(item, uids), metav1.CreateOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
			if err == nil || ctx.Err() != nil {
				return ctx.Err()
			}
			if apierrors.IsAlreadyExists(err) {
				return nil // It was made meanwhile, perhaps by a concurrent request. Its creation finds out.
			}
			mu.Lock()
			defer mu.Unlock()
			if isReplaced(item) && isFinal(err) {
				item.Outcome, item.Reason = ownership.UndeletionLeft, cannotBeCreated(err)
				return nil
			}
			if isPassing(err) {
				return nil // Nothing is known about it. It is tried again when it is created.
			}
			u.problem("%s cannot be created: %v", item, err)
			item.Outcome, item.Reason = ownership.UndeletionDenied, denied
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

// needsAnother is whether an item cannot be created, even as a dry run, before another one
// of the graph: the namespace it is in, the definition of its kind, a pod's service account.
func (u *undeletion) needsAnother(item *Item) bool {
	if item != u.root && u.isContent(item) {
		return true
	}
	if item.kind() != podKind {
		return false
	}
	account, _, _ := unstructured.NestedString(item.then.Object, "spec", "serviceAccountName")
	other := u.named[name{schema.GroupKind{Kind: "ServiceAccount"}, item.Namespace(), account}]
	return other != nil && other.Outcome == ownership.UndeletionPending
}
