// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// A hold is how a kind's controller is kept from acting on an object: fields, and what they
// are until the end. Which are put back as they were is what the object is released by.
type hold struct {
	fields map[string]any
	// says is what the plan says of it.
	says string
}

const gate = "ownership.kindred.dev/moving"

// holds by kind. A Deployment that is merely paused still resizes its ReplicaSets.
var holds = map[schema.GroupKind]hold{
	{Group: "apps", Kind: "Deployment"}:  {map[string]any{"spec.paused": true, "spec.replicas": int64(0)}, "paused, no replicas"},
	{Group: "apps", Kind: "ReplicaSet"}:  {map[string]any{"spec.replicas": int64(0)}, "no replicas"},
	{Group: "apps", Kind: "StatefulSet"}: {map[string]any{"spec.replicas": int64(0)}, "no replicas"},
	{Kind: "ReplicationController"}:      {map[string]any{"spec.replicas": int64(0)}, "no replicas"},
	{Group: "batch", Kind: "Job"}:        {map[string]any{"spec.suspend": true}, "suspended"},
	{Group: "batch", Kind: "CronJob"}:    {map[string]any{"spec.suspend": true}, "suspended"},
	{Kind: "Pod"}:                        {map[string]any{"spec.schedulingGates": []any{map[string]any{"name": gate}}}, "scheduling gate"},
}

func holdOf(kind schema.GroupKind) (hold, bool) {
	if transplant.IsClusterAPI(kind) {
		return hold{map[string]any{"metadata.annotations." + transplant.ClusterAPIPause: "true"}, "paused"}, true
	}
	h, found := holds[kind]
	return h, found
}

// isUnheld reports whether a controller may act on an object of this kind at once.
func isUnheld(kind schema.GroupKind) bool {
	if _, held := holdOf(kind); held {
		return false
	}
	custom := strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
	return custom || kind == schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
}

// fieldsOf splits a path. What follows metadata.annotations is one key.
func fieldsOf(path string) []string {
	if key, found := strings.CutPrefix(path, "metadata.annotations."); found {
		return []string{"metadata", "annotations", key}
	}
	return strings.Split(path, ".")
}

// Hold puts a clean object on hold, and returns the merge patch (RFC 7386) that ends it, or
// "" for an object that has no hold. What its controller sizes, when that moves too, is not
// put back: the controller does it, once it is released itself.
func Hold(object *unstructured.Unstructured, sized bool) string {
	h, found := holdOf(object.GroupVersionKind().GroupKind())
	if !found {
		return ""
	}
	release := map[string]any{}
	for path, held := range h.fields {
		fields := fieldsOf(path)
		former, _, _ := unstructured.NestedFieldCopy(object.Object, fields...)
		if gates, ok := former.([]any); ok {
			held = append(gates[:len(gates):len(gates)], held.([]any)...)
		}
		_ = unstructured.SetNestedField(object.Object, held, fields...)
		if !sized {
			// An absent field becomes null, which removes it.
			_ = unstructured.SetNestedField(release, former, fields...)
		}
	}
	// Cannot fail: it was decoded from JSON.
	patch, _ := json.Marshal(release)
	return string(patch)
}

// isSized reports whether the controller of an object decides how many replicas it has.
func isSized(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Group: "apps", Kind: "ReplicaSet"} || kind == schema.GroupKind{Kind: "ReplicationController"}
}
