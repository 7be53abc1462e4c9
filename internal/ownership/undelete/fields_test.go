// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestFieldsAreCompact checks that managedFields are kept as JSON rather than as trees, and that
// they are dropped for restored objects.
func TestFieldsAreCompact(t *testing.T) {
	applied := func(o *unstructured.Unstructured) {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "maker", Operation: metav1.ManagedFieldsOperationApply,
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{"f:a":{}}}`)}}})
	}
	then := object("ConfigMap", "a", applied)
	before := then.DeepCopy()
	item := newItem(resourceOf("ConfigMap"), then)
	if diff := cmp.Diff(before.Object, then.Object); diff != "" {
		t.Errorf("the object itself has changed:\n%s", diff)
	}
	if item.then.GetManagedFields() != nil {
		t.Error("the fields are kept as a tree")
	}
	want, _, _ := unstructured.NestedSlice(before.Object, "metadata", managedFields)
	if diff := cmp.Diff(want, item.managedFields()); diff != "" {
		t.Errorf("the fields are not what they were:\n%s", diff)
	}
	for uid, kept := range map[string]bool{"a": true, "new": false} {
		now := object("ConfigMap", "a", applied)
		now.SetUID(types.UID(uid))
		if item.setNow(now); item.now.GetManagedFields() != nil != kept || now.GetManagedFields() == nil {
			t.Errorf("object with the UID %s: managedFields kept: %v", uid, !kept)
		}
	}
	if item := newItem(resourceOf("ConfigMap"), object("ConfigMap", "b")); item.managedFields() != nil {
		t.Errorf("fields of a missing object: %v", item.managedFields())
	}
	if item.setNow(nil); item.now != nil {
		t.Error("a missing object counts as existing")
	}
}

// TestFieldsOfAStatus checks that managedFields of a status are restored only with the status.
func TestFieldsOfAStatus(t *testing.T) {
	managed := func(o *unstructured.Unstructured) {
		fields := &metav1.FieldsV1{Raw: []byte(`{}`)}
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "maker", FieldsType: "FieldsV1", FieldsV1: fields}, {Manager: "kubelet", Subresource: "status", FieldsType: "FieldsV1", FieldsV1: fields}})
	}
	for phase, want := range map[string]int{"Running": 1, "Succeeded": 2} {
		pod := object("Pod", "a", managed, set(phase, "status", "phase"))
		if got := newItem(resourceOf("Pod"), pod).managedFields(); len(got) != want {
			t.Errorf("%s: %v", phase, got)
		}
	}
}
