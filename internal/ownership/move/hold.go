// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// hold is how a kind's controller is paused for an object: fields with the values that they have
// until the release, which restores their former values.
type hold struct {
	fields map[string]any
	// says is the description in the plan.
	says string
}

const gate = "ownership.kindred.dev/moving"

// holds has the holds by kind. A Deployment needs both fields, because a paused Deployment still
// scales its ReplicaSets.
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
	if kind == clusterapi.Cluster { // which pauses all that belongs to it
		return hold{map[string]any{"spec.paused": true}, "paused"}, true
	}
	if clusterapi.Has(kind.Group) {
		return hold{map[string]any{"metadata.annotations." + clusterapi.PausedAnnotation: "true"}, "paused"}, true
	}
	h, found := holds[kind]
	return h, found
}

// isUnheld reports whether a controller may act on a copy of this kind at once, because the kind
// has no hold.
func isUnheld(kind schema.GroupKind) bool {
	if _, held := holdOf(kind); held {
		return false
	}
	custom := strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
	return custom || kind == schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
}

// fieldsOf splits a path. The part after "metadata.annotations." is one key.
func fieldsOf(path string) []string {
	if key, found := strings.CutPrefix(path, "metadata.annotations."); found {
		return []string{"metadata", "annotations", key}
	}
	return strings.Split(path, ".")
}

// Hold puts a cleaned object on hold and returns the merge patch (RFC 7386) that releases it, or ""
// if its kind has no hold. If the object's controller scales it and moves too, the patch does not
// restore the replicas: the controller does, once it is released itself.
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
	// Cannot fail: all values were decoded from JSON.
	patch, _ := json.Marshal(release)
	return string(patch)
}

// isSized reports whether the controller of an object of this kind decides its number of replicas.
func isSized(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Group: "apps", Kind: "ReplicaSet"} || kind == schema.GroupKind{Kind: "ReplicationController"}
}
