// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
)

// releasedAs makes an item whose object was restored and released by the undeletion of root.
func releasedAs(item *Item, root types.UID) *Item {
	item.lineage.learn([]deletion.Restoration{{UID: item.UID(), From: item.FormerUID(), Origin: item.FormerUID(), Root: root}}, nil)
	return item
}

// TestFate checks the outcome of one object in every stage of an undeletion.
func TestFate(t *testing.T) {
	root := func(outcome ownership.UndeletionOutcome, now *unstructured.Unstructured) *Item {
		item := itemOf(object("ReplicaSet", "root"), now)
		item.Outcome = outcome
		return item
	}
	pending, left, restored := root(ownership.UndeletionPending, nil), root(ownership.UndeletionLeft, nil), root(ownership.UndeletionRestored, object("ReplicaSet", "root", withUID("new")))
	child := func(kind string, changes ...change) *unstructured.Unstructured {
		return object(kind, "child", append([]change{ownedBy("root")}, changes...)...)
	}
	then := child("ConfigMap")
	other := func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Set", Name: "other", UID: "other", Controller: new(true)}})
	}
	unowned := func(o *unstructured.Unstructured) { o.SetOwnerReferences(nil) }
	own := map[types.UID]deletion.Record{"child": {UID: "child", By: deletion.Caller{User: "jane"}, Time: metav1.NewMicroTime(noon)}}
	const again = "it was deleted again in the meantime"
	for name, tt := range map[string]struct {
		item            *Item
		own             map[types.UID]deletion.Record
		stage           stage
		want            ownership.UndeletionOutcome
		reason, problem string
	}{
		"gone":                                {item: itemOf(then, nil, pending), want: ownership.UndeletionPending},
		"deleted while restoring":             {item: itemOf(then, nil, restored), stage: restoring, want: ownership.UndeletionPending},
		"deleted while releasing":             {item: itemOf(then, nil, restored), stage: releasing, want: ownership.UndeletionLeft, reason: again},
		"the root was being deleted":          {item: itemOf(object("ReplicaSet", "root", deleting), nil), want: ownership.UndeletionPending},
		"deleted on its own":                  {item: itemOf(then, nil, pending), own: own, want: ownership.UndeletionLeft, reason: "it was deleted on its own, by jane at 2026-01-01T12:00:00Z"},
		"deleted on its own, while releasing": {item: itemOf(then, nil, pending), own: own, stage: releasing, want: ownership.UndeletionLeft, reason: "it was deleted on its own, by jane at 2026-01-01T12:00:00Z"},
		"already being deleted":               {item: itemOf(child("ConfigMap", deleting), nil, pending), want: ownership.UndeletionLeft, reason: "it was already being deleted"},
		"endpoints of the controller":         {item: itemOf(child("Endpoints", labelled("endpoints.kubernetes.io/managed-by", "endpoint-controller")), nil, pending), want: ownership.UndeletionLeft, reason: "its controller recreates it"},
		"manual endpoints":                    {item: itemOf(child("Endpoints"), nil, pending), want: ownership.UndeletionPending},
		"slices of the controller":            {item: itemOf(child("EndpointSlice", labelled("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io")), nil, pending), want: ownership.UndeletionLeft, reason: "its controller recreates it"},
		"mirrored slices":                     {item: itemOf(child("EndpointSlice", labelled("endpointslice.kubernetes.io/managed-by", "endpointslicemirroring-controller.k8s.io")), nil, pending), want: ownership.UndeletionLeft, reason: "its controller recreates it"},
		"slices of another manager":           {item: itemOf(child("EndpointSlice", labelled("endpointslice.kubernetes.io/managed-by", "mesh.example.com")), nil, pending), want: ownership.UndeletionPending},
		"its owner is Left":                   {item: itemOf(then, nil, left), want: ownership.UndeletionLeft, reason: "its owner ReplicaSet shop/root is not restored"},
		"one of its owners is Left":           {item: itemOf(then, nil, left, pending), want: ownership.UndeletionPending},

		"exists, orphaned":                   {item: itemOf(then, child("ConfigMap", unowned), pending), want: ownership.UndeletionAdopted},
		"exists, with the old reference":     {item: itemOf(then, then, pending), want: ownership.UndeletionAdopted},
		"exists, with its new owner":         {item: itemOf(then, object("ConfigMap", "child", ownedBy("new")), restored), want: ownership.UndeletionUnchanged},
		"exists, its owner is Left":          {item: itemOf(then, child("ConfigMap", unowned), left), want: ownership.UndeletionUnchanged},
		"exists, its owner was not deleted":  {item: itemOf(then, then, root(ownership.UndeletionUnchanged, object("ReplicaSet", "root"))), want: ownership.UndeletionUnchanged},
		"exists, in the restored namespace":  {item: itemOf(object("ConfigMap", "child"), object("ConfigMap", "child"), pending), want: ownership.UndeletionUnchanged},
		"exists, with another controller":    {item: itemOf(then, child("ConfigMap", other), pending), want: ownership.UndeletionLeft, reason: "it exists, and Set other controls it now"},
		"still being deleted":                {item: itemOf(then, child("ConfigMap", deleting), pending), want: ownership.UndeletionLeft, problem: "is still being deleted; wait until it is gone"},
		"still being deleted, when restored": {item: itemOf(then, child("ConfigMap", deleting), restored), stage: restoring, want: ownership.UndeletionLeft, problem: "is still being deleted; wait until it is gone"},
		"being deleted, when released":       {item: itemOf(then, child("ConfigMap", deleting), restored), stage: releasing, want: ownership.UndeletionLeft, reason: again},
		"a pod that is still being deleted":  {item: itemOf(child("Pod"), child("Pod", deleting), pending), want: ownership.UndeletionLeft, reason: "it is still being deleted, and its controller creates a replacement"},
		"a pod without its controller":       {item: itemOf(child("Pod"), child("Pod", deleting), left), want: ownership.UndeletionLeft, problem: "is still being deleted; wait until it is gone"},

		"another object, before the undeletion": {item: itemOf(then, child("ConfigMap", withUID("else")), pending), want: ownership.UndeletionTaken, problem: "cannot be restored: another object has its name, created at "},
		"another object, created meanwhile":     {item: itemOf(then, child("ConfigMap", withUID("else")), restored), stage: restoring, want: ownership.UndeletionTaken, reason: "an object of this name was created in the meantime"},
		"restored before":                       {item: itemOf(then, child("ConfigMap", withUID("else"), onHold("child", false)), restored), stage: restoring, want: ownership.UndeletionRestored},
		"restored from another object":          {item: itemOf(then, child("ConfigMap", withUID("else"), onHold("third", false)), restored), stage: restoring, want: ownership.UndeletionTaken, reason: "an object of this name was created in the meantime"},
		"restored by another undeletion":        {item: itemOf(then, child("ConfigMap", withUID("else"), func(o *unstructured.Unstructured) { hold(o, mark{Root: "other", From: "child", For: typeAndName(o)}) }), restored), stage: restoring, want: ownership.UndeletionAdopted},
		"released":                              {item: releasedAs(itemOf(then, child("ConfigMap", withUID("else")), restored), "root"), stage: releasing, want: ownership.UndeletionRestored},
		"released meanwhile":                    {item: releasedAs(itemOf(then, child("ConfigMap", withUID("else")), restored), "root"), stage: restoring, want: ownership.UndeletionRestored},
		"released before":                       {item: releasedAs(itemOf(then, child("ConfigMap", withUID("else")), restored), "other"), want: ownership.UndeletionAdopted},
		"replaced, releasing":                   {item: itemOf(then, child("ConfigMap", withUID("else")), restored), stage: releasing, want: ownership.UndeletionTaken, reason: "an object of this name was created in the meantime"},
		"not released yet":                      {item: itemOf(then, child("ConfigMap", withUID("else"), onHold("child", false)), restored), stage: releasing, want: ownership.UndeletionRestored},
		"exists, while releasing":               {item: itemOf(then, object("ConfigMap", "child", ownedBy("new")), restored), stage: releasing, want: ownership.UndeletionUnchanged},
	} {
		t.Run(name, func(t *testing.T) {
			judged := pending
			if tt.item.Name() == "root" {
				judged = tt.item
			}
			outcome, reason, problem := outcomeOf(tt.item, judged, tt.own, tt.stage)
			if outcome != tt.want || reason != tt.reason || !strings.HasPrefix(problem, tt.problem) || (problem == "") != (tt.problem == "") {
				t.Errorf("%s, reason %q, problem %q", outcome, reason, problem)
			}
		})
	}
}

// TestJudge checks that dependents of a left item are left too, and that problems name their items.
func TestJudge(t *testing.T) {
	root := itemOf(object("ReplicaSet", "root"), nil)
	gone := itemOf(object("ConfigMap", "gone", ownedBy("root")), nil, root)
	below := itemOf(object("ConfigMap", "below", ownedBy("gone")), nil, gone)
	taken := itemOf(object("ConfigMap", "taken", ownedBy("root")), object("ConfigMap", "taken", withUID("else")), root)
	problems := decideOutcomes([]*Item{root, gone, taken, below}, root, map[types.UID]deletion.Record{"gone": {}}, fresh)
	if len(problems) != 1 || problems[taken] == "" {
		t.Errorf("problems %v", problems)
	}
	if root.Outcome != ownership.UndeletionPending || gone.Outcome != ownership.UndeletionLeft || below.Outcome != ownership.UndeletionLeft {
		t.Errorf("outcomes %v", outcomesOf([]*Item{root, gone, below}))
	}
}

// TestReasonsHide checks that a reason does not name an owner that the caller may not read.
func TestReasonsHide(t *testing.T) {
	root := itemOf(object("ReplicaSet", "root"), nil)
	item := itemOf(object("ConfigMap", "child", ownedBy("root")), nil, root)
	item.Reason = abandoned(item)
	for may, want := range map[bool]string{true: "its owner ReplicaSet shop/root is not restored", false: "its owner is not restored"} {
		if got := item.ReasonFor(func(owner *Item) bool { return may && owner == root }); got != want {
			t.Errorf("%v: %q", may, got)
		}
	}
	item.Reason = "it was already being deleted"
	if got := item.ReasonFor(func(*Item) bool { return false }); got != item.Reason {
		t.Errorf("%q", got)
	}
}

// TestOwnDeletions checks that deletions by operators whose owner is being deleted, and by
// controllers that empty a namespace or kind, belong to the cascade, and that deletions by a person
// do not.
func TestOwnDeletions(t *testing.T) {
	operator, jane := deletion.Caller{User: "system:serviceaccount:capi-system:manager", Agent: "manager/v1.14"}, deletion.Caller{User: "jane", Agent: "kubectl/v1.37.1"}
	record := func(uid types.UID, by deletion.Caller, revision int64, owners ...types.UID) deletion.Record {
		r := deletion.Record{UID: uid, By: by, Revision: revision}
		for _, owner := range owners {
			r.References = append(r.References, metav1.OwnerReference{UID: owner})
		}
		return r
	}
	child := func(name string, owners ...types.UID) *Item {
		return itemOf(object("ConfigMap", name, ownedBy(owners...)), nil)
	}
	for name, tt := range map[string]struct {
		root    *unstructured.Unstructured
		policy  metav1.DeletionPropagation
		records []deletion.Record
		want    []types.UID
	}{
		"by an operator":                        {records: []deletion.Record{record("child", operator, 11, "root"), record("grandchild", operator, 12, "child")}},
		"one owner of two":                      {records: []deletion.Record{record("child", operator, 11, "root", "outside")}},
		"by a person":                           {records: []deletion.Record{record("child", jane, 11, "root")}, want: []types.UID{"child"}},
		"by an operator, below one by a person": {records: []deletion.Record{record("child", jane, 11, "root"), record("grandchild", operator, 12, "child")}, want: []types.UID{"child"}},
		"orphaned before":                       {records: []deletion.Record{record("child", operator, 11, "outside")}, want: []types.UID{"child"}},
		"orphaned by the policy":                {policy: metav1.DeletePropagationOrphan, records: []deletion.Record{record("child", operator, 11, "root")}, want: []types.UID{"child"}},
		"of an object outside":                  {records: []deletion.Record{record("outside", jane, 11)}},
		"the root, later":                       {records: []deletion.Record{record("root", operator, 11)}},
		"a namespace": {root: object("Namespace", "shop"), records: []deletion.Record{
			record("child", deletion.Caller{User: "system:serviceaccount:kube-system:namespace-controller", Agent: "kube-controller-manager/v1.37"}, 11, "root"),
			record("content", deletion.Caller{User: "system:serviceaccount:kube-system:namespace-controller", Agent: "kube-controller-manager/v1.37"}, 11),
			record("grandchild", jane, 11),
		}, want: []types.UID{"grandchild"}},
		"a kind": {root: object("CustomResourceDefinition", "configmaps"), records: []deletion.Record{record("content", deletion.Caller{User: "system:apiserver"}, 11)}},
	} {
		t.Run(name, func(t *testing.T) {
			root := tt.root
			if root == nil {
				root = object("ConfigMap", "root")
			}
			root.SetUID("root")
			w := newWorld(t, &memory{records: append(tt.records, record("before", jane, 9))})
			u := &undeletion{Cluster: w.cluster, Request: Request{Name: root.GetName()}, root: itemOf(root, nil)}
			u.items = []*Item{u.root, child("child", "root", "outside"), child("grandchild", "child"), child("content"), child("before", "root")}
			if own, err := u.ownDeletions(t.Context()); err != nil || own != nil {
				t.Errorf("without a record: %v, %v", own, err)
			}
			u.past = past{uid: "root", record: deletion.Record{Revision: 10, Policy: tt.policy}}
			own, err := u.ownDeletions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Sorted(maps.Keys(own)); !slices.Equal(got, tt.want) {
				t.Errorf("deleted on their own: %v, want %v", got, tt.want)
			}
		})
	}
}
