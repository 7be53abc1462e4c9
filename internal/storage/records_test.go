// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kindred-project/kindred/internal/deletion"
)

var (
	alice     = deletion.Caller{User: "alice", Agent: "kubectl", AuditID: "a1"}
	gc        = deletion.Caller{User: "collector", Collector: true}
	forAlice  = func(ctx context.Context) context.Context { return deletion.WithCaller(ctx, alice) }
	forGC     = func(ctx context.Context) context.Context { return deletion.WithCaller(ctx, gc) }
	forUpdate = func(ctx context.Context) context.Context {
		return request.WithRequestInfo(ctx, &request.RequestInfo{Verb: "update"})
	}
	forNobody = func(ctx context.Context) context.Context { return ctx }
)

// mark sets a pod's deletion timestamp, as the registry does.
func (p *past) mark(ctx context.Context, name string, finalizers ...string) int64 {
	p.Helper()
	pod := &corev1.Pod{}
	return p.written(pod, p.pods.GuaranteedUpdate(ctx, podKey(name), pod, false, nil, storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		o.(*corev1.Pod).DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		o.(*corev1.Pod).Finalizers = finalizers
		return o, nil
	}), nil))
}

func (p *past) remove(ctx context.Context, name string) int64 {
	p.Helper()
	pod := &corev1.Pod{}
	return p.written(pod, p.pods.Delete(ctx, podKey(name), pod, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}))
}

func (p *past) records(name string) []deletion.Record {
	p.Helper()
	found, err := p.backend.Records().ByName(p.Context(), pods, "default", name)
	if err != nil {
		p.Fatal(err)
	}
	return found
}

func TestRecordsOfDeletions(t *testing.T) {
	for name, tt := range map[string]struct {
		// do deletes the pod that was created at a revision, and returns the revision of the
		// deletion.
		do   func(p *past) int64
		want deletion.Caller // empty: no record
		as   metav1.DeletionPropagation
	}{
		"at once":           {func(p *past) int64 { return p.remove(forAlice(p.Context()), "a") }, alice, "Background"},
		"gracefully":        {func(p *past) int64 { return p.mark(forAlice(p.Context()), "a") }, alice, "Background"},
		"in the foreground": {func(p *past) int64 { return p.mark(forAlice(p.Context()), "a", "foregroundDeletion") }, alice, "Foreground"},
		"orphaning":         {func(p *past) int64 { return p.mark(forAlice(p.Context()), "a", "x", "orphan") }, alice, "Orphan"},
		"removed later by another client": {func(p *past) int64 {
			marked := p.mark(forAlice(p.Context()), "a")
			p.remove(deletion.WithCaller(p.Context(), deletion.Caller{User: "node"}), "a")
			return marked
		}, alice, "Background"},
		"marked twice": {func(p *past) int64 {
			marked := p.mark(forAlice(p.Context()), "a")
			p.mark(deletion.WithCaller(p.Context(), deletion.Caller{User: "bob"}), "a", "x")
			return marked
		}, alice, "Background"},
		"by the collector":  {func(p *past) int64 { return p.remove(forGC(p.Context()), "a") }, deletion.Caller{}, ""},
		"by an update":      {func(p *past) int64 { return p.remove(forUpdate(p.Context()), "a") }, deletion.Caller{}, ""},
		"without a request": {func(p *past) int64 { return p.remove(forNobody(p.Context()), "a") }, serverCaller, "Background"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t, Encryption{})
			created := p.create("a", "one")
			p.create("ab", "one")
			at := tt.do(p)
			found := p.records("a")
			if tt.want == (deletion.Caller{}) {
				if len(found) > 0 {
					t.Errorf("recorded: %+v", found)
				}
				return
			}
			if len(found) != 1 {
				t.Fatalf("%d records", len(found))
			}
			got := found[0]
			if got.By != tt.want || got.Policy != tt.as || got.Revision != at || got.ResourceVersion != fmt.Sprint(created) || got.Name != "a" || got.Resource != pods || !slices.Equal(got.References, owners) {
				t.Errorf("got %+v, want by %v as %s at %d of %d", got, tt.want, tt.as, at, created)
			}
			if others := p.records("ab"); len(others) > 0 {
				t.Errorf("an object that was not deleted has the record %+v", others)
			}
		})
	}
}

// TestRecordsMatchDeletions: a record is written in the transaction of the deletion. A failed
// deletion leaves none, and a retried one leaves one.
func TestRecordsMatchDeletions(t *testing.T) {
	p := newPast(t, Encryption{})
	p.create("a", "one")
	refuse := func(context.Context, runtime.Object) error { return fmt.Errorf("no") }
	if err := p.pods.Delete(forAlice(t.Context()), podKey("a"), &corev1.Pod{}, nil, refuse, nil, storage.DeleteOptions{}); err == nil {
		t.Fatal("the object was deleted")
	}
	if found := p.records("a"); len(found) > 0 {
		t.Fatalf("a failed deletion is recorded: %+v", found)
	}
	// The first attempt conflicts: the pod changes after it was read.
	var change sync.Once
	changing := func(context.Context, runtime.Object) error {
		change.Do(func() { p.update("a", "two") })
		return nil
	}
	if err := p.pods.Delete(forAlice(t.Context()), podKey("a"), &corev1.Pod{}, nil, changing, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	found := p.records("a")
	if len(found) != 1 {
		t.Fatalf("%d records", len(found))
	}
	if image := p.image("a", p.revision(found[0].ResourceVersion)); image != "two" {
		t.Errorf("the recorded last state is %s", image)
	}
	if before := p.image("a", found[0].Revision-1); before != "two" || p.image("a", found[0].Revision) != "none" {
		t.Error("the record and the deletion have different revisions")
	}
}

func TestCollectedRecords(t *testing.T) {
	p := newPast(t, Encryption{})
	var batch []deletion.Record
	for i := range 1000 {
		batch = append(batch, deletion.Record{
			Resource: pods, Namespace: []string{"default", "other"}[i%2], Name: fmt.Sprintf("p%d", i/2), UID: types.UID(fmt.Sprint(i)), ResourceVersion: fmt.Sprint(i),
			Time: metav1.NewMicroTime(time.Unix(int64(i), 0)), By: deletion.Caller{User: "gc"}, Policy: "Background",
			Owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Owner", Name: "o", UID: types.UID(fmt.Sprint("o", i%3))}},
		})
	}
	batch[0].Policy, batch[0].InOtherNamespace = "Foreground", []types.UID{"o0"}
	if err := p.backend.Records().AddCollected(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	keys, err := p.backend.Client().Get(t.Context(), collectedPrefix, clientv3.WithPrefix())
	if err != nil || keys.Count != 2 {
		t.Fatalf("%d keys for 1000 objects in two namespaces, %v", keys.Count, err)
	}
	if size := len(keys.Kvs[0].Value) / 500; size > 120 {
		t.Errorf("an object takes %d bytes", size)
	}
	for _, i := range []int{0, 7, 999} {
		want := batch[i]
		found, err := p.backend.Records().ByName(t.Context(), pods, want.Namespace, want.Name)
		if err != nil || len(found) != 1 {
			t.Fatalf("%d records, %v", len(found), err)
		}
		got := found[0]
		if !got.Time.Time.Equal(want.Time.Time) || got.UID != want.UID || got.Policy != want.Policy || len(got.Owners) != 1 || got.Owners[0] != want.Owners[0] || got.By != want.By || got.ResourceVersion != want.ResourceVersion || !slices.Equal(got.InOtherNamespace, want.InOtherNamespace) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestRecordsWithTheSameName: of several objects with one name, the latest is first.
func TestRecordsWithTheSameName(t *testing.T) {
	p := newPast(t, Encryption{})
	for range 3 {
		p.create("a", "one")
		p.minute()
		p.remove(forAlice(t.Context()), "a")
	}
	// All objects have the same UID here, so the last record stands for all of them.
	found, err := p.backend.Records().Requested(t.Context(), 0)
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	later := found[0]
	earlier := later
	// The clock of the server that recorded the earlier deletion was fast.
	earlier.Time = metav1.NewMicroTime(later.Time.Add(time.Hour))
	earlier.UID, earlier.ResourceVersion = "another", "3"
	if err := p.backend.Records().AddCollected(t.Context(), []deletion.Record{earlier}); err != nil {
		t.Fatal(err)
	}
	if got := p.records("a"); len(got) != 2 || got[0].UID != later.UID || got[1].UID != "another" {
		t.Errorf("order of the records: %+v", got)
	}
	if got, err := p.backend.Records().Requested(t.Context(), later.Revision+1); err != nil || len(got) != 0 {
		t.Errorf("records since then: %+v, %v", got, err)
	}
}

// TestRecordsExpire: records expire, and share their leases.
func TestRecordsExpire(t *testing.T) {
	p := newPast(t, Encryption{})
	for i := range 5 {
		p.create(fmt.Sprint("p", i), "one")
		p.remove(forAlice(t.Context()), fmt.Sprint("p", i))
	}
	found, err := p.backend.Client().Get(t.Context(), requestPrefix, clientv3.WithPrefix())
	if err != nil || found.Count != 5 {
		t.Fatal(found, err)
	}
	lease := clientv3.LeaseID(found.Kvs[0].Lease)
	left, err := p.backend.Client().TimeToLive(t.Context(), lease, clientv3.WithAttachedKeys())
	if err != nil || len(left.Keys) != 5 {
		t.Fatalf("the lease has %v, %v", left, err)
	}
	if want := int64(DefaultRetention.Deletions.Seconds()); left.TTL < want || left.TTL > want*106/100 {
		t.Errorf("records are kept for %d s, want %d", left.TTL, want)
	}
	// If the lease is lost, one deletion fails, and the next one gets a new lease.
	if _, err := p.backend.Client().Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	p.create("a", "one")
	if err := p.pods.Delete(forAlice(t.Context()), podKey("a"), &corev1.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err == nil {
		t.Error("deleted with a record that cannot expire")
	}
	p.remove(forAlice(t.Context()), "a")
}

func TestTooManyRecords(t *testing.T) {
	p := newPast(t, Encryption{})
	for i := range 10 {
		p.create(fmt.Sprint("p", i), "one")
		p.remove(forAlice(t.Context()), fmt.Sprint("p", i))
	}
	r := p.backend.records
	if err := r.pruneUnder(t.Context(), requestPrefix, 4, func(string) int { return 1 }); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if n := len(p.records(fmt.Sprint("p", i))); (n == 1) != (i >= 6) {
			t.Errorf("p%d has %d records", i, n)
		}
	}
	if got := sizeOf("/kindred/deletions/collected/pods/default/0001-250"); got != 250 {
		t.Errorf("a batch has %d objects", got)
	}
}
