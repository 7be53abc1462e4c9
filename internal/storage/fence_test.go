// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kindred-project/kindred/internal/deletion"
)

// TestFence: a write under the fence of an earlier term changes nothing and says so, with a record and without; a write under no
// fence, or the present one, succeeds, or conflicts as usual.
func TestFence(t *testing.T) {
	b := open(t, t.TempDir())
	lost := 0
	first := fenceOf(t, b, "first", func() { lost++ })
	second := fenceOf(t, b, "second", func() { t.Error("the present fence is said to be lost") })
	none := t.Context()
	withRecord := func(ctx context.Context) context.Context {
		ctx, pending := withPendingRecord(ctx)
		pending.record = &deletion.Record{Name: "a"}
		return ctx
	}
	const key = "/registry/a"
	put := func(ctx context.Context, revision int64) (kubernetes.PutResponse, error) {
		return b.client.Kubernetes.OptimisticPut(ctx, key, []byte("x"), revision, kubernetes.PutOptions{GetOnFailure: true})
	}
	created, err := put(second.Under(none), 0)
	if err != nil || !created.Succeeded {
		t.Fatalf("a write under the present fence: %+v, %v", created, err)
	}
	conflict, err := put(second.Under(none), created.Revision+1)
	if err != nil || conflict.Succeeded || string(conflict.KV.Value) != "x" {
		t.Errorf("a conflict under the present fence: %+v, %v", conflict, err)
	}
	for name, ctx := range map[string]context.Context{"plain": first.Under(none), "with a record": withRecord(first.Under(none))} {
		for verb, err := range map[string]error{
			"put":    errOf(put(ctx, created.Revision)),
			"delete": errOf(b.client.Kubernetes.OptimisticDelete(ctx, key, created.Revision, kubernetes.DeleteOptions{})),
		} {
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "second does") {
				t.Errorf("a %s under an earlier fence, %s: %v", verb, name, err)
			}
		}
	}
	if lost != 4 {
		t.Errorf("%d of 4 failures reported", lost)
	}
	if kept, err := b.client.Client.Get(none, key); err != nil || len(kept.Kvs) != 1 || kept.Kvs[0].ModRevision != created.Revision {
		t.Errorf("the key is now %+v, %v", kept, err)
	}
	if records, err := b.Records().Requested(none, 0); err != nil || len(records) > 0 {
		t.Errorf("records of what was not deleted: %+v, %v", records, err)
	}
	deleted, err := b.client.Kubernetes.OptimisticDelete(withRecord(second.Under(none)), key, created.Revision, kubernetes.DeleteOptions{})
	if err != nil || !deleted.Succeeded {
		t.Errorf("a deletion under the present fence: %+v, %v", deleted, err)
	}
	if records, err := b.Records().Requested(none, 0); err != nil || len(records) != 1 {
		t.Errorf("records of the deletion: %+v, %v", records, err)
	}
}

func fenceOf(t *testing.T, b *Backend, leader string, lost func()) *Fence {
	t.Helper()
	fence, err := b.NewFence(t.Context(), leader, lost)
	if err != nil {
		t.Fatal(err)
	}
	return fence
}

func errOf[T any](_ T, err error) error { return err }
