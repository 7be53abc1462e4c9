// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"encoding/json"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/kindred-project/kindred/internal/deletion"
)

// pendingRecord is in the context of a call to etcd3: the record to write in the transaction
// that etcd3 commits. It is filled while the call runs, when etcd3 shows the object to a
// callback. A context is the only way from there to recordWriter.
type pendingRecord struct{ record *deletion.Record }

type pendingRecordKey struct{}

func withPendingRecord(ctx context.Context) (context.Context, *pendingRecord) {
	pending := &pendingRecord{}
	return context.WithValue(ctx, pendingRecordKey{}, pending), pending
}

// pendingRecordFrom returns the record to write; nil if there is none.
func pendingRecordFrom(ctx context.Context) *deletion.Record {
	if pending, ok := ctx.Value(pendingRecordKey{}).(*pendingRecord); ok {
		return pending.record
	}
	return nil
}

// recordWriter is the client below etcd3. It writes a deletion and its record in one
// transaction, and checks the fence of a write.
type recordWriter struct {
	kubernetes.Interface
	client *clientv3.Client
	leases *leases
}

// OptimisticPut implements kubernetes.Interface.
func (w recordWriter) OptimisticPut(ctx context.Context, key string, content []byte, revision int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	record := pendingRecordFrom(ctx)
	if record == nil && fenceFrom(ctx) == nil {
		return w.Interface.OptimisticPut(ctx, key, content, revision, opts)
	}
	put := clientv3.OpPut(key, string(content), clientv3.WithLease(opts.LeaseID))
	answer, err := w.commit(ctx, key, revision, opts.GetOnFailure, record, put)
	return kubernetes.PutResponse(answer), err
}

// OptimisticDelete implements kubernetes.Interface.
func (w recordWriter) OptimisticDelete(ctx context.Context, key string, revision int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	return w.deleteRecorded(ctx, key, revision, pendingRecordFrom(ctx), opts)
}

// deleteRecorded deletes a key that is still at a revision, and writes the record unless it
// is nil.
func (w recordWriter) deleteRecorded(ctx context.Context, key string, revision int64, record *deletion.Record, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	if record == nil && fenceFrom(ctx) == nil {
		return w.Interface.OptimisticDelete(ctx, key, revision, opts)
	}
	return w.commit(ctx, key, revision, opts.GetOnFailure, record, clientv3.OpDelete(key))
}

// commit performs a write if the key is still at a revision and the fence of the write holds, and stores the write's record, unless
// it is nil.
func (w recordWriter) commit(ctx context.Context, key string, revision int64, getOnFailure bool, record *deletion.Record, write clientv3.Op) (kubernetes.DeleteResponse, error) {
	writes := []clientv3.Op{write}
	if record != nil {
		putRecord, err := w.putRecord(ctx, record)
		if err != nil {
			return kubernetes.DeleteResponse{}, err
		}
		writes = []clientv3.Op{putRecord, write}
	}
	fence := fenceFrom(ctx)
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)}
	var reads []clientv3.Op
	if fence != nil {
		conditions, reads = append(conditions, fence.holds()), append(reads, clientv3.OpGet(leaderKey))
	}
	if getOnFailure {
		reads = append(reads, clientv3.OpGet(key))
	}
	done, err := w.client.Txn(ctx).If(conditions...).Then(writes...).Else(reads...).Commit()
	if err != nil {
		w.leases.drop(err)
		return kubernetes.DeleteResponse{}, err
	}
	if done.Succeeded {
		return kubernetes.DeleteResponse{Succeeded: true, Revision: done.Header.Revision}, nil
	}
	return refused(done, fence, getOnFailure)
}

// refused is the response to a write whose conditions did not hold: an error if that was the fence.
func refused(done *clientv3.TxnResponse, fence *Fence, getOnFailure bool) (kubernetes.DeleteResponse, error) {
	answer, reads := kubernetes.DeleteResponse{Revision: done.Header.Revision}, done.Responses
	if fence != nil {
		if err := fence.check(reads[0].GetResponseRange()); err != nil {
			return kubernetes.DeleteResponse{}, err
		}
		reads = reads[1:]
	}
	if getOnFailure {
		answer.KV = firstKey(reads)
	}
	return answer, nil
}

func (w recordWriter) putRecord(ctx context.Context, r *deletion.Record) (clientv3.Op, error) {
	lease, err := w.leases.get(ctx)
	if err != nil {
		return clientv3.Op{}, err
	}
	content, err := json.Marshal(storedRecord{
		ResourceVersion: r.ResourceVersion, Time: r.Time, By: r.By, Policy: r.Policy, Owners: ownersOf(r.References),
	})
	return clientv3.OpPut(requestKey(r), string(content), clientv3.WithLease(lease)), err
}

// firstKey returns the key that the first operation, a read, found; nil if it found none.
func firstKey(answers []*pb.ResponseOp) *mvccpb.KeyValue {
	for _, kv := range answers[0].GetResponseRange().GetKvs() {
		return kv
	}
	return nil
}
