// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/deletion"
)

func restoration(resource, namespace, name string, from, uid, origin types.UID) deletion.Restoration {
	return deletion.Restoration{
		Resource: schema.ParseGroupResource(resource), Namespace: namespace, Name: name, UID: uid, From: from, Origin: origin,
		Root: "root", State: 7, Time: metav1.NewMicroTime(time.Unix(1700000000, 0)),
	}
}

func lostReference(namespace, name string, uid, owner types.UID) deletion.LostReference {
	return deletion.LostReference{
		Resource: schema.ParseGroupResource("deployments.apps"), Namespace: namespace, Name: name, UID: uid,
		Owner: metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner, Controller: new(true)},
	}
}

// TestRestored: records of undeletions are read by namespace, together with those of cluster-scoped
// objects.
func TestRestored(t *testing.T) {
	p := newPast(t, Encryption{})
	r := p.backend.Records()
	first := []deletion.Restoration{
		restoration("configmaps", "shop", "a", "a0", "a1", "a0"), restoration("deployments.apps", "shop", "d", "d1", "d2", "d0"),
		restoration("persistentvolumes", "", "v", "v0", "v1", "v0"), restoration("configmaps", "shopping", "b", "b0", "b1", "b0"),
	}
	lost := []deletion.LostReference{lostReference("shop", "d", "d1", "o"), lostReference("shop", "d", "d1", "p"), lostReference("other", "e", "e1", "o")}
	for range 2 { // the second call changes nothing
		if err := r.AddRestored(t.Context(), first, lost); err != nil {
			t.Fatal(err)
		}
	}
	read := func(namespace string) (said []string) {
		t.Helper()
		restored, lost, err := r.Restored(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range restored {
			if o.Revision == 0 {
				t.Errorf("%+v has no revision", o)
			}
			o.Revision = 0
			if !slices.Contains(first, o) {
				t.Errorf("%+v was not added", o)
			}
			said = append(said, fmt.Sprintf("%s<%s", o.UID, o.From))
		}
		for _, l := range lost {
			said = append(said, fmt.Sprintf("%s:%s of %s %s", l.UID, l.Owner.UID, l.Resource, l.Name))
		}
		return said
	}
	for namespace, want := range map[string][]string{
		"shop":  {"v1<v0", "a1<a0", "d2<d1", "d1:o of deployments.apps d", "d1:p of deployments.apps d"},
		"other": {"v1<v0", "e1:o of deployments.apps e"},
		"":      {"v1<v0", "a1<a0", "d2<d1", "b1<b0", "e1:o of deployments.apps e", "d1:o of deployments.apps d", "d1:p of deployments.apps d"},
	} {
		if diff := cmp.Diff(want, read(namespace)); diff != "" {
			t.Errorf("records of namespace %q:\n%s", namespace, diff)
		}
	}
	if err := r.ForgetLost(t.Context(), lost[:1]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v1<v0", "a1<a0", "d2<d1", "d1:p of deployments.apps d"}, read("shop")); diff != "" {
		t.Errorf("after a removal:\n%s", diff)
	}
}

// TestManyRestored: objects are written in batches, batches in transactions within etcd's limits,
// and each key expires.
func TestManyRestored(t *testing.T) {
	p := newPast(t, Encryption{})
	var restored []deletion.Restoration
	var lost []deletion.LostReference
	long := strings.Repeat("n", 240)
	for i := range 7000 {
		uid := types.UID(fmt.Sprintf("%036d", i))
		restored = append(restored, restoration("configmaps", "shop", fmt.Sprint(long, i), uid, "1"+uid[1:], "2"+uid[1:]))
		lost = append(lost, lostReference("shop", fmt.Sprint(long, i), uid, "o"))
	}
	if err := p.backend.Records().AddRestored(t.Context(), restored, lost[:300]); err != nil {
		t.Fatal(err)
	}
	if found, _, err := p.backend.Records().Restored(t.Context(), "shop"); err != nil || len(found) != 7000 {
		t.Fatalf("%d records: %v", len(found), err)
	}
	keys, err := p.backend.Client().Get(t.Context(), ownPrefix+"undeletions/", clientv3.WithPrefix())
	if err != nil || keys.Count != 307 {
		t.Fatalf("%d keys: %v", keys.Count, err)
	}
	objects := 0
	for _, kv := range keys.Kvs {
		if kv.Lease == 0 {
			t.Errorf("%s never expires", kv.Key)
		}
		if strings.HasPrefix(string(kv.Key), restoredPrefix) {
			objects += sizeOf(string(kv.Key))
		}
	}
	if objects != 7000 {
		t.Errorf("the keys have %d objects", objects)
	}
	if err := p.backend.records.pruneUnder(t.Context(), restoredPrefix, 3000, sizeOf); err != nil {
		t.Fatal(err)
	}
	if found, _, err := p.backend.Records().Restored(t.Context(), "shop"); err != nil || len(found) != 3000 {
		t.Errorf("%d records are left: %v", len(found), err)
	}
}
