// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/storage/check"
)

// DropDamaged removes the damaged objects in the report from a stopped store, and no others.
// Like upstream's unsafe deletion of malformed objects (KEP-3926) it ignores finalizers and
// preconditions, which cannot be read. Damaged past versions cannot be removed one by one, so
// it removes all past versions.
func DropDamaged(ctx context.Context, dir string, c clock.Clock, report *check.Report) error {
	if !report.Droppable() {
		return &check.Error{Dir: dir, Report: report}
	}
	b, err := openEmbedded(ctx, dir, nil, c, DefaultRetention)
	if err != nil {
		return err
	}
	defer b.Close()
	client := b.Client()
	for _, d := range report.Damage {
		// A version that was replaced since is a past version by now.
		same := clientv3.Compare(clientv3.ModRevision(d.Key), "=", d.Revision)
		if _, err := client.Txn(ctx).If(same).Then(clientv3.OpDelete(d.Key)).Commit(); err != nil {
			return fmt.Errorf("delete %s: %w", d.Key, err)
		}
	}
	latest, err := b.Revision(ctx)
	if err != nil {
		return err
	}
	if _, err := client.Compact(ctx, int64(latest), clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("remove past versions: %w", err)
	}
	return nil
}
