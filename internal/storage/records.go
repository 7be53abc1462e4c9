// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/deletion"
)

const (
	// requestPrefix has a key for each requested deletion: resource, namespace, name and UID.
	requestPrefix = ownPrefix + "deletions/asked/"
	// collectedPrefix has a key for each batch of objects that the garbage collector deleted:
	// resource, namespace, time, and number of objects.
	collectedPrefix = ownPrefix + "deletions/collected/"

	// requestLimit and collectedLimit bound the number of records: to about 30 MB of memory for
	// etcd's index, and 60 MB of disk.
	requestLimit   = 50_000
	collectedLimit = 500_000
)

// records are the records of deletions and undeletions in etcd. They expire with their leases.
type records struct {
	client *clientv3.Client
	leases *leases
}

var _ deletion.Records = &records{}

// Records returns the records of deletions and undeletions.
func (b *Backend) Records() deletion.Records { return b.records }

// storedRecord is the value under a requestPrefix key.
type storedRecord struct {
	ResourceVersion string                     `json:"resourceVersion"`
	Time            metav1.MicroTime           `json:"time"`
	By              deletion.Caller            `json:"by"`
	Policy          metav1.DeletionPropagation `json:"policy"`
	Owners          []owner                    `json:"owners,omitempty"`
}

func requestKey(r *deletion.Record) string {
	return placePrefix(requestPrefix, r.Resource, r.Namespace) + r.Name + "/" + string(r.UID)
}

// placePrefix returns the prefix of the keys about a resource's objects in a namespace. A
// cluster-scoped resource has an empty namespace in it.
func placePrefix(prefix string, resource schema.GroupResource, namespace string) string {
	return prefix + resource.String() + "/" + namespace + "/"
}

// decodeRequest decodes the record of a requested deletion.
func decodeRequest(kv *mvccpb.KeyValue) (deletion.Record, error) {
	at := strings.Split(strings.TrimPrefix(string(kv.Key), requestPrefix), "/")
	var stored storedRecord
	if err := json.Unmarshal(kv.Value, &stored); err != nil || len(at) != 4 {
		return deletion.Record{}, fmt.Errorf("%s in etcd is not a record of a deletion: %w", kv.Key, err)
	}
	return deletion.Record{
		Resource: schema.ParseGroupResource(at[0]), Namespace: at[1], Name: at[2], UID: types.UID(at[3]),
		ResourceVersion: stored.ResourceVersion, Time: stored.Time, By: stored.By, Policy: stored.Policy, Revision: kv.ModRevision,
		References: referencesTo(stored.Owners),
	}, nil
}

// batch is the value of a collected key. Owners are listed once, because the objects of a batch
// share them.
type batch struct {
	By      deletion.Caller `json:"by"`
	Owners  []owner         `json:"owners"`
	Objects []collected     `json:"objects"`
}

// owner is the part of an owner reference that names the owner.
type owner struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
	// InOtherNamespace is set if the owner is in another namespace.
	InOtherNamespace bool `json:"elsewhere,omitempty"`
}

func ownerOf(ref metav1.OwnerReference) owner {
	return owner{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
}

func (o owner) reference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID}
}

func ownersOf(refs []metav1.OwnerReference) []owner {
	var owners []owner
	for _, ref := range refs {
		owners = append(owners, ownerOf(ref))
	}
	return owners
}

func referencesTo(owners []owner) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, o := range owners {
		refs = append(refs, o.reference())
	}
	return refs
}

// collected is an object that the collector deleted. Its JSON names are short because there may
// be many.
type collected struct {
	Name            string                     `json:"n"`
	UID             types.UID                  `json:"u"`
	ResourceVersion string                     `json:"v"`
	Time            metav1.MicroTime           `json:"t"`
	Policy          metav1.DeletionPropagation `json:"p,omitempty"`
	Owners          []int                      `json:"o"`
}

// ByName implements deletion.Records.
func (r *records) ByName(ctx context.Context, resource schema.GroupResource, namespace, name string) ([]deletion.Record, error) {
	var found []deletion.Record
	for kv, err := range r.keys(ctx, placePrefix(requestPrefix, resource, namespace)+name+"/") {
		if err != nil {
			return nil, err
		}
		record, err := decodeRequest(kv)
		if err != nil {
			return nil, err
		}
		found = append(found, record)
	}
	for kv, err := range r.keys(ctx, placePrefix(collectedPrefix, resource, namespace)) {
		if err != nil {
			return nil, err
		}
		var b batch
		if err := json.Unmarshal(kv.Value, &b); err != nil {
			return nil, fmt.Errorf("%s in etcd is not a batch of deletions: %w", kv.Key, err)
		}
		for _, object := range b.Objects {
			if object.Name == name {
				found = append(found, b.record(object, resource, namespace, kv.ModRevision))
			}
		}
	}
	// The objects of one key are in the order of their deletions, even if the clocks of several
	// servers disagree.
	slices.SortStableFunc(found, func(a, b deletion.Record) int { return cmp.Compare(lastState(b), lastState(a)) })
	return found, nil
}

// Requested implements deletion.Records.
func (r *records) Requested(ctx context.Context, since int64) ([]deletion.Record, error) {
	var found []deletion.Record
	for kv, err := range r.keys(ctx, requestPrefix, clientv3.WithMinModRev(since)) {
		if err != nil {
			return nil, err
		}
		record, err := decodeRequest(kv)
		if err != nil {
			return nil, err
		}
		found = append(found, record)
	}
	slices.SortFunc(found, func(a, b deletion.Record) int { return cmp.Compare(b.Revision, a.Revision) })
	return found, nil
}

// lastState returns the revision of the object's last state before its deletion.
func lastState(r deletion.Record) int64 {
	revision, _ := strconv.ParseInt(r.ResourceVersion, 10, 64)
	return revision
}

// keys yields the keys with a prefix.
func (r *records) keys(ctx context.Context, prefix string, which ...clientv3.OpOption) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		for kv, err := range pages(ctx, r.client, prefix, clientv3.GetPrefixRangeEnd(prefix), which...) {
			if err != nil {
				yield(nil, fmt.Errorf("etcd does not answer: %w", err))
				return
			}
			if !yield(kv, nil) {
				return
			}
		}
	}
}

func (b *batch) record(o collected, resource schema.GroupResource, namespace string, revision int64) deletion.Record {
	r := deletion.Record{
		Resource: resource, Namespace: namespace, Name: o.Name, UID: o.UID,
		ResourceVersion: o.ResourceVersion, Time: o.Time, By: b.By, Policy: o.Policy, Revision: revision,
	}
	if r.Policy == "" {
		r.Policy = metav1.DeletePropagationBackground
	}
	for _, i := range o.Owners {
		r.Owners = append(r.Owners, b.Owners[i].reference())
		if b.Owners[i].InOtherNamespace {
			r.InOtherNamespace = append(r.InOtherNamespace, b.Owners[i].UID)
		}
	}
	return r
}

// AddCollected implements deletion.Records: one key for the objects of a resource in a namespace.
func (r *records) AddCollected(ctx context.Context, records []deletion.Record) error {
	places := map[string][]deletion.Record{}
	for _, record := range records {
		place := placePrefix(collectedPrefix, record.Resource, record.Namespace)
		places[place] = append(places[place], record)
	}
	lease, err := r.leases.get(ctx)
	if err != nil {
		return err
	}
	for place, group := range places {
		content, err := json.Marshal(batchOf(group))
		if err != nil {
			return err
		}
		key := fmt.Sprintf("%s%019d-%d", place, group[0].Time.UnixNano(), len(group))
		if _, err := r.client.Put(ctx, key, string(content), clientv3.WithLease(lease)); err != nil {
			r.leases.drop(err)
			return err
		}
	}
	return nil
}

func batchOf(records []deletion.Record) batch {
	b, known := batch{By: records[0].By}, map[owner]int{}
	for _, r := range records {
		object := collected{Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion, Time: r.Time}
		if r.Policy != metav1.DeletePropagationBackground {
			object.Policy = r.Policy
		}
		for _, reference := range r.Owners {
			o := ownerOf(reference)
			o.InOtherNamespace = slices.Contains(r.InOtherNamespace, o.UID)
			i, ok := known[o]
			if !ok {
				i = len(b.Owners)
				known[o], b.Owners = i, append(b.Owners, o)
			}
			object.Owners = append(object.Owners, i)
		}
		b.Objects = append(b.Objects, object)
	}
	return b
}

// prune removes the oldest records if there are too many.
func (r *records) prune(ctx context.Context) error {
	if err := r.pruneUnder(ctx, requestPrefix, requestLimit, func(string) int { return 1 }); err != nil {
		return err
	}
	if err := r.pruneUnder(ctx, collectedPrefix, collectedLimit, sizeOf); err != nil {
		return err
	}
	if err := r.pruneUnder(ctx, restoredPrefix, collectedLimit, sizeOf); err != nil {
		return err
	}
	return r.pruneUnder(ctx, lostPrefix, requestLimit, func(string) int { return 1 })
}

// sizeOf returns the number of objects in a collected or restored key: the part between the
// first dash and the second.
func sizeOf(key string) int {
	_, number, _ := strings.Cut(path.Base(key), "-")
	number, _, _ = strings.Cut(number, "-")
	n, _ := strconv.Atoi(number)
	return n
}

func (r *records) pruneUnder(ctx context.Context, prefix string, limit int, size func(key string) int) error {
	count, err := r.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	// A batch has at most BatchLimit objects, so the number of keys mostly suffices.
	if err != nil || count.Count*int64(size(fmt.Sprintf("/-%d", deletion.BatchLimit))) <= int64(limit) {
		return err
	}
	all, err := r.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil {
		return err
	}
	for _, kv := range all.Kvs {
		if limit -= size(string(kv.Key)); limit >= 0 {
			continue
		}
		if _, err := r.client.Delete(ctx, string(kv.Key)); err != nil {
			return err
		}
	}
	return nil
}
