// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// UIDs that are whole words to transplant.Remap.
const (
	rootWas, rootIs = types.UID("11111111-0000-0000-0000-000000000000"), types.UID("11111111-9999-9999-9999-999999999999")
	lateWas, lateIs = types.UID("22222222-0000-0000-0000-000000000000"), types.UID("22222222-9999-9999-9999-999999999999")
	childIs         = types.UID("33333333-9999-9999-9999-999999999999")
)

func annotated(key, value string) change {
	return func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, value, "metadata", "annotations", key)
	}
}

func finalized(finalizers ...string) change {
	return func(o *unstructured.Unstructured) { o.SetFinalizers(finalizers) }
}

func managed(o *unstructured.Unstructured) {
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "maker", Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"` + string(rootWas) + `\"}":{}}}}`)}}})
}

// undeletionOf returns an undeletion of an existing root, and an item that the root owned.
func undeletionOf(then *unstructured.Unstructured) (*undeletion, *Item) {
	root := itemOf(object("ReplicaSet", "root", withUID(rootWas)), object("ReplicaSet", "root", withUID(rootIs)))
	late := itemOf(object("ReplicaSet", "late", withUID(lateWas)), nil)
	item := itemOf(then, nil, root, late)
	u := &undeletion{
		Cluster: &Cluster{Owner: func(uid types.UID) (graph.Object, bool) { return graph.Object{}, uid == "outside" }, Served: served},
		past:    past{uid: rootWas, revision: 10}, root: root, items: []*Item{root, late, item}, report: &Report{}, lineage: &lineage{root: rootWas},
	}
	for _, item := range u.items {
		item.lineage = u.lineage
	}
	return u, item
}

// TestDesired checks the object that is created for an item.
func TestDesired(t *testing.T) {
	then := object("ConfigMap", "child", ownedBy(rootWas, lateWas, "outside", "gone"), annotated(ownership.HoldAnnotation, "by hand"),
		annotated("seen", `{"uid":"`+string(rootWas)+`"}`), finalized("example.com/mine", "cluster.cluster.x-k8s.io", "foregroundDeletion", "kubernetes.io/pvc-protection", "batch.kubernetes.io/job-tracking"),
		set(string(lateWas), "data", "late"), managed, func(o *unstructured.Unstructured) {
			o.SetGenerateName("chi")
			o.SetGeneration(4)
			o.SetCreationTimestamp(metav1.NewTime(noon))
		})
	u, item := undeletionOf(then)
	was := then.DeepCopy()
	got := u.desired(item, u.uids())
	var owners []types.UID
	for _, ref := range got.GetOwnerReferences() {
		owners = append(owners, ref.UID)
	}
	if diff := cmp.Diff([]types.UID{rootIs, "outside"}, owners); diff != "" {
		t.Errorf("owners, those that are there:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"example.com/mine", "cluster.cluster.x-k8s.io", "batch.kubernetes.io/job-tracking"}, got.GetFinalizers()); diff != "" {
		t.Errorf("finalizers:\n%s", diff)
	}
	if m, marked := markOf(got); !marked || m != (mark{Root: rootWas, Of: "ReplicaSet.apps/root", Revision: 10, From: "child", For: "ConfigMap/child"}) {
		t.Errorf("mark %+v", m)
	}
	if got.GetAnnotations()["seen"] != `{"uid":"`+string(rootIs)+`"}` {
		t.Errorf("annotations %v", got.GetAnnotations())
	}
	if got.GetUID() != "" || got.GetResourceVersion() != "" || got.GetGeneration() != 0 || got.GetGenerateName() != "chi" || got.GetCreationTimestamp() != (metav1.Time{}) || got.GetName() != "child" || got.GetNamespace() != "shop" {
		t.Errorf("metadata %v", got.Object["metadata"])
	}
	if fields := got.GetManagedFields(); len(fields) != 1 || string(fields[0].FieldsV1.Raw) != `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"`+string(rootIs)+`\"}":{}}}}` {
		t.Errorf("managed fields %s", fields)
	}
	if diff := cmp.Diff(was.Object, then.Object); diff != "" {
		t.Errorf("the former object was changed:\n%s", diff)
	}
}

// TestStatus checks which statuses are restored.
func TestStatus(t *testing.T) {
	status := func(phase string) change { return set(map[string]any{"phase": phase}, "status") }
	for name, tt := range map[string]struct {
		then *unstructured.Unstructured
		want bool
	}{
		"most kinds":           {object("Job", "a", status("any")), true},
		"none":                 {object("Job", "a"), false},
		"a running pod":        {object("Pod", "a", status("Running")), false},
		"a pod that succeeded": {object("Pod", "a", status("Succeeded")), true},
		"a pod that failed":    {object("Pod", "a", status("Failed")), true},
		"not a pod":            {object("Job", "a", status("Running")), true},
		"a namespace":          {object("Namespace", "a", status("Terminating")), false},
		"a claim":              {object("PersistentVolumeClaim", "a", status("Bound")), false},
		"a volume":             {object("PersistentVolume", "a", status("Bound")), false},
		"a CRD":                {object("CustomResourceDefinition", "a", status("any")), false},
	} {
		if got := statusOf(tt.then) != nil; got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
		u, item := undeletionOf(tt.then)
		if _, got := u.desired(item, nil).Object["status"]; got != tt.want {
			t.Errorf("%s: created with a status: %v", name, got)
		}
	}
}

// TestHoldAndRelease checks that a hold pauses every kind of controller, and that the release
// restores exactly what was there before.
func TestHoldAndRelease(t *testing.T) {
	for name, then := range map[string]*unstructured.Unstructured{
		"plain":                           object("ConfigMap", "a"),
		"on hold by hand before":          object("ConfigMap", "a", annotated(ownership.HoldAnnotation, "by hand")),
		"a pod":                           object("Pod", "a"),
		"a pod with a gate of its own":    object("Pod", "a", set([]any{map[string]any{"name": "example.com/wait"}}, "spec", "schedulingGates")),
		"of Cluster API":                  object("Machine", "a"),
		"of Cluster API, paused":          object("Machine", "a", annotated("cluster.x-k8s.io/paused", "by hand")),
		"not of Cluster API":              object("ConfigMap", "a", annotated("cluster.x-k8s.io/paused", "by hand")),
		"with managed fields":             object("ConfigMap", "a", managed),
		"with the hold of another object": object("ConfigMap", "a", annotated(ownership.HoldAnnotation, mark{From: "b", For: "ConfigMap/b"}.text())),
	} {
		t.Run(name, func(t *testing.T) {
			u, item := undeletionOf(then)
			now := u.desired(item, nil)
			now.SetUID(childIs)
			now.SetResourceVersion("7")
			if !isRestorationOf(item, now) {
				t.Errorf("no mark in %v", now.GetAnnotations())
			}
			gates, _, _ := unstructured.NestedSlice(now.Object, "spec", "schedulingGates")
			had, _, _ := unstructured.NestedSlice(then.Object, "spec", "schedulingGates")
			if isPod := then.GetKind() == "Pod"; isPod && len(gates) != len(had)+1 || !isPod && len(gates) > 0 {
				t.Errorf("gates %v", gates)
			}
			if paused := now.GetAnnotations()["cluster.x-k8s.io/paused"]; then.GetKind() == "Machine" && paused != "true" {
				t.Errorf("paused: %q", paused)
			}
			item.now = now
			patch := releasePatch(item, now, map[types.UID]types.UID{rootWas: rootIs})
			metadata := patch["metadata"].(map[string]any)
			if metadata["uid"] != string(childIs) || metadata["resourceVersion"] != "7" {
				t.Errorf("of any object: %v", metadata)
			}
			if fields, _ := json.Marshal(metadata["managedFields"]); then.GetManagedFields() != nil != (metadata["managedFields"] != nil) {
				t.Errorf("managed fields %s", fields)
			}
			delete(metadata, "uid")
			delete(metadata, "resourceVersion")
			delete(metadata, "managedFields")
			freed := merged(now.Object, patch).(map[string]any)
			is := &unstructured.Unstructured{Object: freed}
			if diff := cmp.Diff(orNone(then.GetAnnotations()), orNone(is.GetAnnotations())); diff != "" {
				t.Errorf("annotations:\n%s", diff)
			}
			if left, _, _ := unstructured.NestedSlice(freed, "spec", "schedulingGates"); cmp.Diff(had, left) != "" {
				t.Errorf("gates:\n%s", cmp.Diff(had, left))
			}
		})
	}
}

func orNone(annotations map[string]string) map[string]string {
	if len(annotations) == 0 {
		return nil
	}
	return annotations
}

// merged applies a JSON merge patch (RFC 7386).
func merged(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	fields, _ := target.(map[string]any)
	result := map[string]any{}
	for key, value := range fields {
		result[key] = value
	}
	for key, value := range changes {
		if value == nil {
			delete(result, key)
			continue
		}
		result[key] = merged(result[key], value)
	}
	return result
}

// TestWithoutHold checks that an object that was deleted while on hold is not restored with that
// hold.
func TestWithoutHold(t *testing.T) {
	for name, was := range map[string]*unstructured.Unstructured{
		"plain":                        object("ConfigMap", "a"),
		"annotated":                    object("ConfigMap", "a", annotated("b", "c")),
		"a pod":                        object("Pod", "a", set("x", "spec", "nodeSelector", "y")),
		"a pod with a gate of its own": object("Pod", "a", set([]any{map[string]any{"name": "example.com/wait"}}, "spec", "schedulingGates")),
		"of Cluster API":               object("Machine", "a"),
	} {
		held := was.DeepCopy()
		onHold("former", false)(held)
		before := held.DeepCopy()
		if diff := cmp.Diff(was.Object, withoutHold(held).Object); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if diff := cmp.Diff(before.Object, held.Object); diff != "" {
			t.Errorf("%s: the former object was changed:\n%s", name, diff)
		}
		if withoutHold(was) != was {
			t.Errorf("%s: changed without a hold", name)
		}
	}
	handedOn := object("ConfigMap", "a", annotated(ownership.HoldAnnotation, mark{From: "b", For: "ConfigMap/b"}.text()))
	if withoutHold(handedOn) != handedOn {
		t.Error("the hold of another object is removed")
	}
}

// TestLinked checks that linked adds missing owners and replaces all former UIDs.
func TestLinked(t *testing.T) {
	uids := map[types.UID]types.UID{rootWas: rootIs, lateWas: lateIs}
	then := object("ConfigMap", "child", ownedBy(rootWas, lateWas), set(string(lateWas), "data", "late"))
	u, item := undeletionOf(then)
	u.items[1].now = object("ReplicaSet", "late", withUID(lateIs))
	owners := func(o *unstructured.Unstructured) (uids []types.UID) {
		for _, ref := range o.GetOwnerReferences() {
			uids = append(uids, ref.UID)
		}
		return uids
	}

	created := object("ConfigMap", "child", withUID(childIs), ownedBy(rootIs), set(string(lateWas), "data", "late"))
	hold(created, mark{Root: rootWas, From: rootWas, For: typeAndName(created)})
	item.now = created
	got := u.linked(item, created, uids)
	if diff := cmp.Diff([]types.UID{rootIs, lateIs}, owners(got)); diff != "" {
		t.Errorf("restored, owners:\n%s", diff)
	}
	if late, _, _ := unstructured.NestedString(got.Object, "data", "late"); late != string(lateIs) {
		t.Errorf("restored: data %q", late)
	}
	if got.GetAnnotations()[ownership.HoldAnnotation] != created.GetAnnotations()[ownership.HoldAnnotation] {
		t.Errorf("the mark has changed: %v", got.GetAnnotations())
	}
	if again := u.linked(item, got, uids); cmp.Diff(got.Object, again.Object) != "" {
		t.Errorf("linked twice:\n%s", cmp.Diff(got.Object, again.Object))
	}

	living := object("ConfigMap", "child", set(string(lateWas), "data", "late"), labelled("root", string(rootWas)))
	item.now = living
	got = u.linked(item, living, uids)
	if diff := cmp.Diff([]types.UID{rootIs, lateIs}, owners(got)); diff != "" {
		t.Errorf("adopted, owners:\n%s", diff)
	}
	if late, _, _ := unstructured.NestedString(got.Object, "data", "late"); late != string(lateWas) || got.GetLabels()["root"] != string(rootIs) {
		t.Errorf("adopted: data %q, labels %v", late, got.GetLabels())
	}

	u.items[1].now = nil
	got = u.linked(item, object("ConfigMap", "child"), map[types.UID]types.UID{rootWas: rootIs})
	if diff := cmp.Diff([]types.UID{rootIs}, owners(got)); diff != "" {
		t.Errorf("while an owner is missing:\n%s", diff)
	}
}
