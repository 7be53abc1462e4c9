// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// mark is what a restored object says of itself until it is released: the value of its hold.
type mark struct {
	// Root is the former UID of the object that was asked for, and Revision that of the state
	// which is brought back.
	Root     types.UID `json:"root"`
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

// isMark is whether an annotation is a mark's.
func isMark(annotation string) bool { return annotation == ownership.HoldAnnotation }
