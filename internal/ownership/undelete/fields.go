// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const managedFields = "managedFields"

// withoutFields returns an object without its managedFields.
func withoutFields(object *unstructured.Unstructured) *unstructured.Unstructured {
	metadata, _ := object.Object["metadata"].(map[string]any)
	if _, found := metadata[managedFields]; !found {
		return object
	}
	metadata = maps.Clone(metadata)
	delete(metadata, managedFields)
	object = &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	object.Object["metadata"] = metadata
	return object
}

// fieldsOf returns an object's managedFields as JSON; nil if it has none.
func fieldsOf(object *unstructured.Unstructured) []byte {
	metadata, _ := object.Object["metadata"].(map[string]any)
	tree, found := metadata[managedFields]
	if !found {
		return nil
	}
	fields, _ := json.Marshal(tree) // Cannot fail: the tree was decoded from JSON.
	return fields
}

// managedFields returns the former object's managedFields; nil if they are not known. It omits
// those of the status if the status is not restored.
func (i *Item) managedFields() (tree []any) {
	_ = json.Unmarshal(i.fields, &tree) // Cannot fail: fieldsOf encoded it, or it is empty.
	if statusOf(i.then) != nil {
		return tree
	}
	return slices.DeleteFunc(tree, func(entry any) bool {
		fields, _ := entry.(map[string]any)
		return fields["subresource"] == "status"
	})
}

// putFields sets an object's managedFields.
func putFields(object *unstructured.Unstructured, tree []any) {
	metadata, ok := object.Object["metadata"].(map[string]any)
	if ok && tree != nil {
		metadata[managedFields] = tree
	}
}
