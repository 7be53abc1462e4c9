// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// mark is what a restored object says of itself until it is released: the value of its hold.
type mark struct {
	// Root is the former UID of the object that was asked for, Of its kind and name, and Revision
	// that of the state which is brought back.
	Root     types.UID `json:"root"`
	Of       string    `json:"of,omitempty"`
	Revision int64     `json:"revision"`
	// From is the former UID of the object itself, and For its kind and name: controllers
	// hand annotations on, and what is handed on says nothing of who has it then.
	From types.UID `json:"from"`
	For  string    `json:"for"`
	// Releasing is said by the root, when all objects are there.
	Releasing bool `json:"releasing,omitempty"`
}

func (m mark) text() string {
	// Cannot fail: it is made of strings and numbers.
	text, _ := json.Marshal(m)
	return string(text)
}

// markOf is an object's own mark.
func markOf(object *unstructured.Unstructured) (mark, bool) {
	var m mark
	text, found := object.GetAnnotations()[ownership.HoldAnnotation]
	if !found || json.Unmarshal([]byte(text), &m) != nil || m.From == "" {
		return mark{}, false
	}
	return m, m.For == called(object)
}

// called names an object among those of its namespace.
func called(object *unstructured.Unstructured) string {
	return object.GroupVersionKind().GroupKind().String() + "/" + object.GetName()
}

// unheld is an object as it was without the hold that an earlier undeletion had it on, when it
// was deleted again.
func unheld(object *unstructured.Unstructured) *unstructured.Unstructured {
	if _, marked := markOf(object); !marked {
		return object
	}
	object = object.DeepCopy()
	transplant.DropAnnotations(object, func(annotation string) bool {
		return isMark(annotation) || annotation == transplant.ClusterAPIPause && transplant.IsClusterAPI(object.GroupVersionKind().GroupKind())
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

// isMark is whether an annotation is a mark's.
func isMark(annotation string) bool { return annotation == ownership.HoldAnnotation }
