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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kindred-project/kindred/internal/deletion"
)

// A record of a deletion is written in the transaction that deletes the object, or that
// gives it its deletion timestamp: there is neither without the other, and it costs no round
// trip. recorded knows the object and who asked, and notes both in the context; recording,
// below the library's storage, adds them to the transaction.

// recorded is the storage of a resource whose deletions are remembered.
type recorded struct {
	storage.Interface
	backend  *Backend
	resource schema.GroupResource
}

// server is who deletes what no request asked for: the objects of a custom resource whose
// definition goes.
var server = deletion.Caller{User: user.APIServerUser}

// deleter is who has an object deleted; false if no record is due.
func deleter(ctx context.Context) (deletion.Caller, bool) {
	if caller, ok := deletion.CallerFrom(ctx); ok {
		return caller, !caller.Collector
	}
	_, isRequest := request.RequestInfoFrom(ctx)
	return server, !isRequest
}

// Delete records a deletion that was not begun before.
func (r recorded) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	caller, due := deleter(ctx)
	if !due {
		return r.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	}
	note := &note{}
	noting := func(ctx context.Context, object runtime.Object) error {
		note.record = nil
		if was := stateOf(object); was != nil && was.deleted == nil {
			note.record = r.record(caller, was.version, object)
		}
		return validate(ctx, object)
	}
	return r.Interface.Delete(context.WithValue(ctx, noteKey{}, note), key, out, preconditions, noting, cached, opts)
}

// GuaranteedUpdate records a deletion that begins: the object gets its deletion timestamp.
func (r recorded) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	caller, due := deleter(ctx)
	if !due {
		return r.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	}
	note := &note{}
	noting := func(input runtime.Object, info storage.ResponseMeta) (runtime.Object, *uint64, error) {
		note.record = nil
		was := stateOf(input) // before update changes it in place
		output, ttl, err := update(input, info)
		if is := stateOf(output); err == nil && was != nil && was.deleted == nil && is != nil && is.deleted != nil {
			note.record = r.record(caller, was.version, output)
		}
		return output, ttl, err
	}
	return r.Interface.GuaranteedUpdate(context.WithValue(ctx, noteKey{}, note), key, out, ignoreNotFound, preconditions, noting, cached)
}

// state is what of an object decides whether a record is due.
type state struct {
	version string
	deleted *metav1.Time
}

func stateOf(object runtime.Object) *state {
	if object == nil {
		return nil
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	return &state{accessor.GetResourceVersion(), accessor.GetDeletionTimestamp()}
}

func (r recorded) record(caller deletion.Caller, version string, object runtime.Object) *deletion.Record {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	return &deletion.Record{
		Resource: r.resource, Namespace: accessor.GetNamespace(), Name: accessor.GetName(), UID: accessor.GetUID(),
		ResourceVersion: version, Time: metav1.NewMicroTime(r.backend.clock.Now()), By: caller, Policy: deletion.PolicyOf(accessor.GetFinalizers()),
		References: accessor.GetOwnerReferences(),
	}
}

// note is what is to be written along with the next write.
type note struct{ record *deletion.Record }

type noteKey struct{}

// recording is etcd as the library's storage knows it, which writes what was noted.
type recording struct {
	kubernetes.Interface
	client *clientv3.Client
	leases *leases
}

// along returns what to write along with a write; nil if that is nothing.
func (r recording) along(ctx context.Context) ([]clientv3.Op, error) {
	note, ok := ctx.Value(noteKey{}).(*note)
	if !ok || note.record == nil {
		return nil, nil
	}
	lease, err := r.leases.get(ctx)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(storedRecord{
		ResourceVersion: note.record.ResourceVersion, Time: note.record.Time, By: note.record.By, Policy: note.record.Policy,
		Owners: ownersOf(note.record.References),
	})
	if err != nil {
		return nil, err
	}
	return []clientv3.Op{clientv3.OpPut(askedKey(note.record), string(content), clientv3.WithLease(lease))}, nil
}

// OptimisticPut implements kubernetes.Interface.
func (r recording) OptimisticPut(ctx context.Context, key string, content []byte, revision int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	record, err := r.along(ctx)
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	if record == nil {
		return r.Interface.OptimisticPut(ctx, key, content, revision, opts)
	}
	write := append(record, clientv3.OpPut(key, string(content), clientv3.WithLease(opts.LeaseID)))
	answer, err := r.commit(ctx, key, revision, opts.GetOnFailure, write)
	return kubernetes.PutResponse(answer), err
}

// OptimisticDelete implements kubernetes.Interface.
func (r recording) OptimisticDelete(ctx context.Context, key string, revision int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	record, err := r.along(ctx)
	if err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	if record == nil {
		return r.Interface.OptimisticDelete(ctx, key, revision, opts)
	}
	return r.commit(ctx, key, revision, opts.GetOnFailure, append(record, clientv3.OpDelete(key)))
}

// commit writes if the key is still at a revision.
func (r recording) commit(ctx context.Context, key string, revision int64, getOnFailure bool, write []clientv3.Op) (kubernetes.DeleteResponse, error) {
	txn := r.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(write...)
	if getOnFailure {
		txn = txn.Else(clientv3.OpGet(key))
	}
	done, err := txn.Commit()
	if err != nil {
		r.leases.drop(err)
		return kubernetes.DeleteResponse{}, err
	}
	answer := kubernetes.DeleteResponse{Succeeded: done.Succeeded, Revision: done.Header.Revision}
	if !done.Succeeded && getOnFailure {
		answer.KV = only(done.Responses)
	}
	return answer, nil
}

// only is the key that one read found, if it did.
func only(answers []*pb.ResponseOp) *mvccpb.KeyValue {
	for _, kv := range answers[0].GetResponseRange().GetKvs() {
		return kv
	}
	return nil
}
