// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package transplant

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kindred-project/kindred/internal/ownership/finalizer"
)

// Soil is where an object is to live.
type Soil struct {
	// Elsewhere is another cluster, which allocates addresses and ports itself.
	Elsewhere bool
	// Has is whether an object comes along.
	Has func(kind schema.GroupKind, namespace, name string) bool
	// Ours are the annotations that whoever transplants puts on objects for a time.
	Ours func(annotation string) bool
}

// Clean is an object without what only the server that it lived on could say of it, and per
// kind without what was allocated or bound for that one life. Owners stay.
func Clean(source *unstructured.Unstructured, soil Soil) *unstructured.Unstructured {
	object := source.DeepCopy()
	delete(object.Object, "status")
	metadata, _, _ := unstructured.NestedMap(object.Object, "metadata")
	kept := map[string]any{}
	for _, field := range []string{"name", "generateName", "namespace", "labels", "annotations", "ownerReferences"} {
		if value, found := metadata[field]; found {
			kept[field] = value
		}
	}
	object.Object["metadata"] = kept
	DropAnnotations(object, soil.Ours)
	if finalizers := finalizer.Foreign(source); len(finalizers) > 0 {
		object.SetFinalizers(finalizers)
	}
	if clean, found := cleaners[object.GroupVersionKind().GroupKind()]; found {
		clean(object, soil)
	}
	return object
}

// DropAnnotations removes annotations.
func DropAnnotations(object *unstructured.Unstructured, drop func(string) bool) {
	annotations := object.GetAnnotations()
	if len(annotations) == 0 {
		return
	}
	for key := range annotations {
		if drop(key) {
			delete(annotations, key)
		}
	}
	object.SetAnnotations(annotations)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations")
	}
}

// Drop removes fields, which are given as paths.
func Drop(object *unstructured.Unstructured, paths ...string) {
	for _, path := range paths {
		unstructured.RemoveNestedField(object.Object, strings.Split(path, ".")...)
	}
}

// cleaners say what of a kind is not kept.
var cleaners = map[schema.GroupKind]func(*unstructured.Unstructured, Soil){
	{Kind: "Service"}: func(o *unstructured.Unstructured, soil Soil) {
		if !soil.Elsewhere {
			return
		}
		// The addresses are those of the source's range. A headless Service keeps None,
		// for that is a choice.
		if ip, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP"); ip != "None" {
			Drop(o, "spec.clusterIP", "spec.clusterIPs")
		}
		Drop(o, "spec.healthCheckNodePort")
		eachPort(o, func(port map[string]any) { delete(port, "nodePort") })
	},
	{Kind: "Pod"}: func(o *unstructured.Unstructured, _ Soil) {
		// Admission computes the priority from the class, and refuses one that differs.
		// Ephemeral containers cannot be created with a pod.
		Drop(o, "spec.nodeName", "spec.priority", "spec.ephemeralContainers")
	},
	{Kind: "PersistentVolumeClaim"}: func(o *unstructured.Unstructured, soil Soil) {
		DropAnnotations(o, ofBinding)
		volume, _, _ := unstructured.NestedString(o.Object, "spec", "volumeName")
		if !soil.Has(schema.GroupKind{Kind: "PersistentVolume"}, "", volume) {
			Drop(o, "spec.volumeName")
		}
	},
	{Kind: "PersistentVolume"}: func(o *unstructured.Unstructured, soil Soil) {
		DropAnnotations(o, ofBinding)
		namespace, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "namespace")
		name, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "name")
		// In its own cluster a volume without the reference would be available to any claim, with
		// the data of the one that it was bound to.
		if soil.Elsewhere && !soil.Has(schema.GroupKind{Kind: "PersistentVolumeClaim"}, namespace, name) {
			Drop(o, "spec.claimRef")
		}
		Drop(o, "spec.claimRef.resourceVersion")
	},
	{Group: "batch", Kind: "Job"}: func(o *unstructured.Unstructured, _ Soil) {
		// Selector and labels are made from the Job's own UID, by the API server, unless
		// the selector was written by hand.
		if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); manual {
			return
		}
		Drop(o, "spec.selector")
		for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
			for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
				unstructured.RemoveNestedField(o.Object, append(slices.Clone(path), label)...)
			}
		}
	},
	{Kind: "ServiceAccount"}: func(o *unstructured.Unstructured, soil Soil) {
		// Where mountable Secrets are enforced (kubernetes.io/enforce-mountable-secrets), the list
		// is what pods may use.
		if soil.Elsewhere {
			Drop(o, "secrets")
		}
	},
	{Kind: "Secret"}: func(o *unstructured.Unstructured, _ Soil) {
		// A token is worth something for the account that it was signed for only; a new one is filled in.
		if kind, _, _ := unstructured.NestedString(o.Object, "type"); kind == "kubernetes.io/service-account-token" {
			Drop(o, "data")
			DropAnnotations(o, func(key string) bool { return key == "kubernetes.io/service-account.uid" })
		}
	},
}

// ofBinding are the annotations by which the volume binder remembers what it did. A claim
// that says it is bound, and whose volume is not there, is Lost for good.
func ofBinding(annotation string) bool {
	return slices.Contains([]string{
		"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
		"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner",
		"volume.beta.kubernetes.io/storage-provisioner",
	}, annotation)
}

func eachPort(o *unstructured.Unstructured, do func(map[string]any)) {
	ports, found, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
	if !found {
		return
	}
	for _, port := range ports {
		if fields, ok := port.(map[string]any); ok {
			do(fields)
		}
	}
	_ = unstructured.SetNestedSlice(o.Object, ports, "spec", "ports")
}

// Observe shifts the generations in a status to those of the copy, whose count starts again:
// what the controller has observed stays observed, and a change that it has not observed stays
// unobserved. A controller that had not observed even the copy's first generation has observed
// none: the field goes, because 0 violates the minimum of 1 that many schemas give it.
func Observe(status map[string]any, source, target int64) {
	shift := func(fields map[string]any) {
		observed, ok := fields["observedGeneration"].(int64)
		if !ok {
			return
		}
		if observed = target - (source - observed); observed < 1 {
			delete(fields, "observedGeneration")
			return
		}
		fields["observedGeneration"] = observed
	}
	shift(status)
	eachCondition(status, shift)
}

// eachCondition visits the conditions of a status, which are the items of lists named conditions,
// at any depth (KEP-1623; the Gateway API has one such list for each parent).
func eachCondition(value any, visit func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			conditions, isList := field.([]any)
			if name != "conditions" || !isList {
				eachCondition(field, visit)
				continue
			}
			for _, condition := range conditions {
				if fields, ok := condition.(map[string]any); ok {
					visit(fields)
				}
			}
		}
	case []any:
		for _, item := range v {
			eachCondition(item, visit)
		}
	}
}
