// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/deletion"
)

const (
	// restoredPrefix has a key for each batch of objects that an undeletion created: namespace,
	// resource, and then time, number and first UID.
	restoredPrefix = ownPrefix + "undeletions/restored/"
	// lostPrefix has a key for each owner reference that is not restored yet: namespace,
	// resource, and then the UIDs of the dependent and of the owner.
	lostPrefix = ownPrefix + "undeletions/lost/"

	// txnLimit is the number of operations that etcd accepts in a transaction, by default.
	txnLimit = 128
)

// restoredBatch is the value of a restored key: objects of one undeletion.
type restoredBatch struct {
	Root    types.UID        `json:"root"`
	State   int64            `json:"state"`
	Time    metav1.MicroTime `json:"time"`
	Objects []restored       `json:"objects"`
}

// restored is an object that an undeletion created. Its JSON names are short because there may
// be many.
type restored struct {
	Name   string    `json:"n"`
	UID    types.UID `json:"u"`
	From   types.UID `json:"f"`
	Origin types.UID `json:"o,omitempty"` // unless it equals From
}

// lost is the value of a lost key.
type lost struct {
	Name  string                `json:"name"`
	Owner metav1.OwnerReference `json:"owner"`
}

// inNamespace returns the part that restored and lost keys have in common. It begins with the
// namespace, because these records are read by namespace, unlike those of deletions.
func inNamespace(namespace string, resource schema.GroupResource) string {
	return namespace + "/" + resource.String() + "/"
}

func lostKey(l deletion.LostReference) string {
	return lostPrefix + inNamespace(l.Namespace, l.Resource) + string(l.UID) + "/" + string(l.Owner.UID)
}

// Restored implements deletion.Restorations.
func (r *records) Restored(ctx context.Context, namespace string) ([]deletion.Restoration, []deletion.LostReference, error) {
	namespaces := []string{""} // all
	if namespace != "" {
		namespaces = []string{"/", namespace + "/"}
	}
	var restored []deletion.Restoration
	var lost []deletion.LostReference
	for _, prefix := range namespaces {
		if err := r.readRestored(ctx, restoredPrefix+prefix, &restored); err != nil {
			return nil, nil, err
		}
		if err := r.readLost(ctx, lostPrefix+prefix, &lost); err != nil {
			return nil, nil, err
		}
	}
	return restored, lost, nil
}

func (r *records) readRestored(ctx context.Context, prefix string, found *[]deletion.Restoration) error {
	for kv, err := range r.keys(ctx, prefix) {
		if err != nil {
			return err
		}
		at := strings.Split(strings.TrimPrefix(string(kv.Key), restoredPrefix), "/")
		var b restoredBatch
		if err := json.Unmarshal(kv.Value, &b); err != nil || len(at) != 3 {
			return fmt.Errorf("%s in etcd is not a batch of restored objects: %w", kv.Key, err)
		}
		for _, o := range b.Objects {
			if o.Origin == "" {
				o.Origin = o.From
			}
			*found = append(*found, deletion.Restoration{
				Resource: schema.ParseGroupResource(at[1]), Namespace: at[0], Name: o.Name,
				UID: o.UID, From: o.From, Origin: o.Origin, Root: b.Root, State: b.State, Time: b.Time, Revision: kv.ModRevision,
			})
		}
	}
	return nil
}

func (r *records) readLost(ctx context.Context, prefix string, found *[]deletion.LostReference) error {
	for kv, err := range r.keys(ctx, prefix) {
		if err != nil {
			return err
		}
		at := strings.Split(strings.TrimPrefix(string(kv.Key), lostPrefix), "/")
		var l lost
		if err := json.Unmarshal(kv.Value, &l); err != nil || len(at) != 4 {
			return fmt.Errorf("%s in etcd is not a lost owner reference: %w", kv.Key, err)
		}
		*found = append(*found, deletion.LostReference{
			Resource: schema.ParseGroupResource(at[1]), Namespace: at[0], Name: l.Name, UID: types.UID(at[2]), Owner: l.Owner,
		})
	}
	return nil
}

// AddRestored implements deletion.Restorations.
func (r *records) AddRestored(ctx context.Context, restorations []deletion.Restoration, references []deletion.LostReference) error {
	places := map[string][]deletion.Restoration{}
	for _, o := range restorations {
		place := restoredPrefix + inNamespace(o.Namespace, o.Resource)
		places[place] = append(places[place], o)
	}
	content := map[string]any{}
	for place, group := range places {
		for batch := range slices.Chunk(group, deletion.BatchLimit) {
			key := fmt.Sprintf("%s%019d-%d-%s", place, batch[0].Time.UnixNano(), len(batch), batch[0].UID)
			content[key] = restoredBatchOf(batch)
		}
	}
	for _, l := range references {
		content[lostKey(l)] = lost{l.Name, l.Owner}
	}
	var puts []clientv3.Op
	for key, value := range content {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		lease, err := r.leases.get(ctx)
		if err != nil {
			return err
		}
		puts = append(puts, clientv3.OpPut(key, string(text), clientv3.WithLease(lease)))
	}
	return r.commit(ctx, puts)
}

func restoredBatchOf(restorations []deletion.Restoration) restoredBatch {
	first := restorations[0]
	b := restoredBatch{Root: first.Root, State: first.State, Time: first.Time}
	for _, o := range restorations {
		object := restored{Name: o.Name, UID: o.UID, From: o.From}
		if o.Origin != o.From {
			object.Origin = o.Origin
		}
		b.Objects = append(b.Objects, object)
	}
	return b
}

// ForgetLost implements deletion.Restorations.
func (r *records) ForgetLost(ctx context.Context, found []deletion.LostReference) error {
	var deletes []clientv3.Op
	for _, l := range found {
		deletes = append(deletes, clientv3.OpDelete(lostKey(l)))
	}
	return r.commit(ctx, deletes)
}

// commit performs writes, in as few transactions as etcd's limits allow.
func (r *records) commit(ctx context.Context, writes []clientv3.Op) error {
	size, from := 0, 0
	for i, op := range writes {
		size += len(op.ValueBytes())
		if last := i == len(writes)-1; !last && i-from+1 < txnLimit && size < txnBytes {
			continue
		}
		if _, err := r.client.Txn(ctx).Then(writes[from : i+1]...).Commit(); err != nil {
			r.leases.drop(err)
			return err
		}
		size, from = 0, i+1
	}
	return nil
}

// txnBytes is the size at which a transaction is sent. It is far below etcd's default limit of
// 1.5 MiB for a request, because the last batch added may have 300 KB.
const txnBytes = 512 << 10
