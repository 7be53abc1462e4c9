// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// mark is the value of the hold of a restored object: it identifies the undeletion and the object.
type mark struct {
	// Root is the former UID of the root, Of the root's kind and name, and Revision the revision
	// whose state is restored.
	Root     types.UID `json:"root"`
	Of       string    `json:"of,omitempty"`
	Revision int64     `json:"revision"`
	// From is the former UID of the object itself, and For its kind and name. Controllers copy
	// annotations to dependents; For shows that a copied mark is not the dependent's own.
	From types.UID `json:"from"`
	For  string    `json:"for"`
	// Releasing is set in the root's mark when all objects are restored.
	Releasing bool `json:"releasing,omitempty"`
}

func (m mark) text() string {
	// Cannot fail: all fields are strings, numbers and booleans.
	text, _ := json.Marshal(m)
	return string(text)
}

// markOf returns an object's own mark, and whether it has one.
func markOf(object *unstructured.Unstructured) (mark, bool) {
	var m mark
	text, found := object.GetAnnotations()[ownership.HoldAnnotation]
	if !found || json.Unmarshal([]byte(text), &m) != nil || m.From == "" {
		return mark{}, false
	}
	return m, m.For == typeAndName(object)
}

// typeAndName identifies an object within its namespace.
func typeAndName(object *unstructured.Unstructured) string {
	return object.GroupVersionKind().GroupKind().String() + "/" + object.GetName()
}

// withoutHold returns an object without the hold of an earlier undeletion. An object that was
// deleted again while on hold has one.
func withoutHold(object *unstructured.Unstructured) *unstructured.Unstructured {
	if _, marked := markOf(object); !marked {
		return object
	}
	object = object.DeepCopy()
	transplant.DropAnnotations(object, func(annotation string) bool {
		return isMark(annotation) || annotation == clusterapi.PausedAnnotation && clusterapi.Has(object.GroupVersionKind().GroupKind().Group)
	})
	gates, found, _ := unstructured.NestedSlice(object.Object, "spec", "schedulingGates")
	if !found {
		return object
	}
	gates = slices.DeleteFunc(gates, func(g any) bool {
		fields, _ := g.(map[string]any)
		return fields["name"] == gate
	})
	if len(gates) == 0 {
		unstructured.RemoveNestedField(object.Object, "spec", "schedulingGates")
		return object
	}
	_ = unstructured.SetNestedSlice(object.Object, gates, "spec", "schedulingGates")
	return object
}

// isMark reports whether an annotation holds a mark.
func isMark(annotation string) bool { return annotation == ownership.HoldAnnotation }
