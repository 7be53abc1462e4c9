// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestMembers checks the members of a graph, their order and their owners.
func TestMembers(t *testing.T) {
	for name, tt := range map[string]struct {
		root *unstructured.Unstructured
		all  []*unstructured.Unstructured
		// want are the members in order, each with its owners.
		want []string
	}{
		"a cascade": {object("Deployment", "web"), []*unstructured.Unstructured{
			object("Pod", "p", ownedBy("rs")), object("ReplicaSet", "rs", ownedBy("web")), object("ConfigMap", "stranger", ownedBy("unknown")),
		}, []string{"web", "rs<web", "p<rs"}},
		"two owners, one of them deeper": {object("Deployment", "web"), []*unstructured.Unstructured{
			object("ConfigMap", "both", ownedBy("web", "rs")), object("ReplicaSet", "rs", ownedBy("web")),
		}, []string{"web", "rs<web", "both<web,rs"}},
		"an owner outside is no member": {object("Deployment", "web"), []*unstructured.Unstructured{
			object("Deployment", "other"), object("ConfigMap", "both", ownedBy("web", "other")),
		}, []string{"web", "both<web"}},
		"in dependency order, pods last": {object("Deployment", "web"), []*unstructured.Unstructured{
			object("Pod", "p", ownedBy("web")), object("Job", "j", ownedBy("web")), object("ServiceAccount", "sa", ownedBy("web")),
		}, []string{"web", "sa<web", "j<web", "p<web"}},
		"no dependents in other namespaces": {object("Deployment", "web"), []*unstructured.Unstructured{
			object("ConfigMap", "elsewhere", ownedBy("web"), in("other")), object("PersistentVolume", "pv", ownedBy("web")),
		}, []string{"web"}},
		"dependents of a cluster-scoped root": {object("PersistentVolume", "pv"), []*unstructured.Unstructured{
			object("ConfigMap", "a", ownedBy("pv")), object("ConfigMap", "b", ownedBy("pv"), in("other")), object("PersistentVolume", "c", ownedBy("pv")),
		}, []string{"pv", "b<pv", "a<pv", "c<pv"}},
		"the content of a namespace": {object("Namespace", "shop"), []*unstructured.Unstructured{
			object("Pod", "p", ownedBy("rs")), object("ReplicaSet", "rs"), object("ConfigMap", "elsewhere", in("other")),
		}, []string{"shop", "rs<shop", "p<rs,shop"}},
		"the objects of a kind": {object("CustomResourceDefinition", "things.example.com"), []*unstructured.Unstructured{
			object("ConfigMap", "c", ownedBy("t")), object("Thing", "t"), object("Thing", "u", in("other")), object("ConfigMap", "stranger"),
		}, []string{"things.example.com", "u<things.example.com", "t<things.example.com", "c<t"}},
		"itself": {object("ConfigMap", "a", ownedBy("a")), nil, []string{"a"}},
		"a cycle that contains the root": {object("Deployment", "a", ownedBy("b")), []*unstructured.Unstructured{
			object("ConfigMap", "b", ownedBy("a")),
		}, []string{"a<b", "b<a"}},
		"a cycle below the root": {object("Deployment", "a"), []*unstructured.Unstructured{
			object("ConfigMap", "b", ownedBy("a", "c")), object("ConfigMap", "c", ownedBy("b")),
		}, []string{"a", "c<b", "b<a,c"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := &undeletion{Request: Request{Name: tt.root.GetName()}, root: itemOf(tt.root, nil)}
			var all []*Item
			for _, o := range tt.all {
				all = append(all, itemOf(o, nil))
			}
			items := inOrder(members(u.root, all, u.isContent))
			var got []string
			for _, item := range items {
				line := item.Name()
				var owners []string
				for _, owner := range item.Owners() {
					owners = append(owners, string(owner))
				}
				if len(owners) > 0 {
					line += "<" + strings.Join(owners, ",")
				}
				got = append(got, line)
				for _, owner := range item.owners {
					if owner.step == item.step {
						t.Errorf("%s is in the same step as its owner %s", item, owner)
					}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSteps checks that steps returns each item once, with all items of the same step.
func TestSteps(t *testing.T) {
	var items []*Item
	for i, depth := range []int{0, 1, 1, 2, 2, 2} {
		items = append(items, &Item{then: object("ConfigMap", fmt.Sprint(i)), step: step{depth: depth}})
	}
	var sizes []int
	for run := range steps(items) {
		sizes = append(sizes, len(run))
	}
	if !slices.Equal(sizes, []int{1, 2, 3}) {
		t.Errorf("sizes of the steps: %v", sizes)
	}
}

// TestRead checks that ephemeral resources, and resources that cannot be in the graph, are not
// read.
func TestRead(t *testing.T) {
	root := object("ConfigMap", "root")
	m := &memory{objects: map[int64][]*unstructured.Unstructured{7: {
		root, object("ConfigMap", "child", ownedBy("root")), object("PersistentVolume", "pv", ownedBy("root")), object("ConfigMap", "lone"),
		object("ConfigMap", "elsewhere", ownedBy("root"), in("other")),
	}}}
	w := newWorld(t, m)
	u := &undeletion{Cluster: w.cluster, Request: request("ConfigMap", "root"), past: past{uid: "root", revision: 7}, report: &Report{}, lineage: &lineage{}}
	if err := u.read(t.Context()); err != nil || len(u.items) != 2 || u.items[1].Name() != "child" {
		t.Errorf("%v: %v", err, u.items)
	}
	if !u.isInGraph(u.items[1].kind(), "shop", "child") || u.isInGraph(u.items[1].kind(), "shop", "lone") {
		t.Error("the order is not that of the graph")
	}
	u.uid = "another"
	if err := u.read(t.Context()); err == nil {
		t.Error("another object with the same name is read")
	}
	for _, r := range []string{"events", "leases"} {
		group := map[string]string{"leases": "coordination.k8s.io"}[r]
		if u.mayBelong(resource(group, "v1", r, "Any", true)) {
			t.Errorf("%s belong to a graph", r)
		}
	}
}

// TestReadCurrent checks that current objects are read one by one if they are few, and listed
// otherwise.
func TestReadCurrent(t *testing.T) {
	var there []*unstructured.Unstructured
	u := &undeletion{Request: Request{}}
	for i := range few + 5 {
		then := object("ConfigMap", fmt.Sprintf("c%02d", i))
		u.items = append(u.items, itemOf(then, nil))
		if i%2 == 0 {
			there = append(there, object("ConfigMap", then.GetName(), withUID(types.UID("new-"+then.GetName()))))
		}
	}
	u.items = append(u.items, itemOf(object("Secret", "s"), nil), itemOf(object("Secret", "none"), nil))
	there = append(there, object("Secret", "s"), object("ConfigMap", "stranger"))
	w := newWorld(t, &memory{}, there...)
	u.Cluster = w.cluster
	if err := u.readCurrent(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, item := range u.items[:few+5] {
		want := types.UID("")
		if i%2 == 0 {
			want = "new-" + item.FormerUID()
		}
		if item.UID() != want {
			t.Errorf("%s has the UID %q", item, item.UID())
		}
	}
	if s := u.items[few+5]; s.UID() != "s" || u.items[few+6].now != nil {
		t.Errorf("one by one: %v", s.now)
	}
	lists := 0
	for _, action := range w.client.Actions() {
		if action.GetVerb() == "list" {
			lists++
		}
	}
	if got := len(w.client.Actions()); lists != 1 || got != 3 {
		t.Errorf("%d requests, %d of them lists", got, lists)
	}
}
