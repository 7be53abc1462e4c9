// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"strings"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/deletion"
)

// deletions is the layer that knows about deletions.
//
// It records them: the transaction that deletes an object, or sets its deletion timestamp,
// also writes the record (see recordWriter), so that one never exists without the other and
// the record costs no round trip.
//
// It has a fast path: if the caller names the version to delete, as the garbage collector
// always does, and the cache has that version, one transaction deletes the object. etcd3
// would encode the cached object for comparison and decode the deleted one.
type deletions struct {
	storage.Interface
	backend  *Backend
	resource schema.GroupResource
	// recorded is false for resources whose deletions get no record.
	recorded bool
	// prefix begins the resource's keys; in etcd they are below root.
	prefix, root string
}

// Delete implements storage.Interface.
func (d deletions) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	caller, due := d.recordDue(ctx)
	if version, ok := namedVersion(key, preconditions, cached); ok && !opts.ExpectTransformOrDecodeError {
		var record *deletion.Record
		if due {
			record = d.recordOfDelete(caller, cached)
		}
		deleted, err := d.deleteVersion(ctx, key, version, out, record, validate, cached)
		if deleted || err != nil {
			return err
		}
		cached = nil // it is out of date: etcd3 reads the object and decides
	}
	if !due {
		return d.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	}
	ctx, pending := withPendingRecord(ctx)
	recording := func(ctx context.Context, object runtime.Object) error {
		pending.record = d.recordOfDelete(caller, object)
		return validate(ctx, object)
	}
	return d.Interface.Delete(ctx, key, out, preconditions, recording, cached, opts)
}

// deleteVersion deletes the cached object if that version is still stored, and reports
// whether it was. It validates the cached object, because the caller wants to delete this
// version and no other.
func (d deletions) deleteVersion(ctx context.Context, key string, version uint64, out runtime.Object, record *deletion.Record, validate storage.ValidateObjectFunc, cached runtime.Object) (bool, error) {
	path, err := d.path(key)
	if err != nil {
		return false, err
	}
	deleted, err := conversion.EnforcePtr(out)
	if err != nil {
		return false, err
	}
	if err := validate(ctx, cached); err != nil {
		return false, err
	}
	began := clock.RealClock{}.Now() // a metric: it measures real time, even under a fake clock
	done, err := d.backend.recordWriter.deleteRecorded(ctx, path, int64(version), record, kubernetes.DeleteOptions{})
	metrics.RecordEtcdRequest("delete", d.resource, err, began)
	if err != nil || !done.Succeeded {
		return false, err
	}
	last, err := conversion.EnforcePtr(cached)
	if err != nil {
		return false, err
	}
	deleted.Set(last) // the cache handed out a copy
	return true, storage.APIObjectVersioner{}.UpdateObject(out, uint64(done.Revision))
}

// namedVersion returns the resource version in the preconditions, if it is that of the cached
// object and the other preconditions hold for it.
func namedVersion(key string, preconditions *storage.Preconditions, cached runtime.Object) (uint64, bool) {
	if preconditions == nil || preconditions.ResourceVersion == nil || cached == nil || preconditions.Check(key, cached) != nil {
		return 0, false
	}
	object, err := meta.Accessor(cached)
	if err != nil {
		return 0, false
	}
	version, err := storage.APIObjectVersioner{}.ParseResourceVersion(object.GetResourceVersion())
	return version, err == nil && version > 0
}

// path returns the key in etcd.
func (d deletions) path(key string) (string, error) {
	key, err := storage.PrepareKey(d.prefix, key, false)
	return d.root + strings.TrimPrefix(key, "/"), err
}

// GuaranteedUpdate implements storage.Interface. It records a deletion that begins: the object
// gets its deletion timestamp.
func (d deletions) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	caller, due := d.recordDue(ctx)
	if !due {
		return d.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	}
	ctx, pending := withPendingRecord(ctx)
	recording := func(input runtime.Object, info storage.ResponseMeta) (runtime.Object, *uint64, error) {
		pending.record = nil // of an earlier attempt
		was := lifeOf(input) // before update changes it in place
		output, ttl, err := update(input, info)
		if is := lifeOf(output); err == nil && was != nil && was.deleted == nil && is != nil && is.deleted != nil {
			pending.record = d.record(caller, was.version, output)
		}
		return output, ttl, err
	}
	return d.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, recording, cached)
}

// serverCaller deletes without a request: the objects of a custom resource whose definition is
// deleted.
var serverCaller = deletion.Caller{User: user.APIServerUser}

// recordDue returns the caller to record, and whether a record is due. The garbage collector
// writes its own records, in batches.
func (d deletions) recordDue(ctx context.Context) (deletion.Caller, bool) {
	if !d.recorded {
		return deletion.Caller{}, false
	}
	if caller, ok := deletion.CallerFrom(ctx); ok {
		return caller, !caller.Collector
	}
	_, isRequest := request.RequestInfoFrom(ctx)
	return serverCaller, !isRequest
}

// life is the part of an object's metadata that decides whether a record is due.
type life struct {
	version string
	deleted *metav1.Time
}

func lifeOf(object runtime.Object) *life {
	if object == nil {
		return nil
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	return &life{accessor.GetResourceVersion(), accessor.GetDeletionTimestamp()}
}

// recordOfDelete returns the record of an object that is about to be removed; nil if the
// deletion began earlier and was recorded then.
func (d deletions) recordOfDelete(caller deletion.Caller, object runtime.Object) *deletion.Record {
	if was := lifeOf(object); was != nil && was.deleted == nil {
		return d.record(caller, was.version, object)
	}
	return nil
}

func (d deletions) record(caller deletion.Caller, version string, object runtime.Object) *deletion.Record {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	return &deletion.Record{
		Resource: d.resource, Namespace: accessor.GetNamespace(), Name: accessor.GetName(), UID: accessor.GetUID(),
		ResourceVersion: version, Time: metav1.NewMicroTime(d.backend.clock.Now()), By: caller, Policy: deletion.PolicyOf(accessor.GetFinalizers()),
		References: accessor.GetOwnerReferences(),
	}
}
