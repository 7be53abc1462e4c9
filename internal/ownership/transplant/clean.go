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

// Destination describes where an object will be created.
type Destination struct {
	// OtherCluster is true for another cluster, which allocates addresses and ports itself.
	OtherCluster bool
	// Has reports whether another object is created there too.
	Has func(kind schema.GroupKind, namespace, name string) bool
	// IsTemporary reports whether an annotation is one that the caller sets on objects only
	// until it has finished.
	IsTemporary func(annotation string) bool
}

// Clean returns a copy of an object without the fields that the API server sets and, by kind,
// without what was allocated or bound for the old object. Owner references stay.
func Clean(source *unstructured.Unstructured, to Destination) *unstructured.Unstructured {
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
	DropAnnotations(object, to.IsTemporary)
	if finalizers := finalizer.Foreign(source); len(finalizers) > 0 {
		object.SetFinalizers(finalizers)
	}
	if clean, found := cleaners[object.GroupVersionKind().GroupKind()]; found {
		clean(object, to)
	}
	return object
}

// DropAnnotations removes the annotations for which drop returns true.
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

// Drop removes the fields with the given paths.
func Drop(object *unstructured.Unstructured, paths ...string) {
	for _, path := range paths {
		unstructured.RemoveNestedField(object.Object, strings.Split(path, ".")...)
	}
}

// cleaners remove the fields of a kind that are not valid for the new object.
var cleaners = map[schema.GroupKind]func(*unstructured.Unstructured, Destination){
	{Kind: "Service"}: func(o *unstructured.Unstructured, to Destination) {
		if !to.OtherCluster {
			return
		}
		// The addresses are from the source's range. A headless Service keeps None, which is
		// the user's choice.
		if ip, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP"); ip != "None" {
			Drop(o, "spec.clusterIP", "spec.clusterIPs")
		}
		Drop(o, "spec.healthCheckNodePort")
		eachPort(o, func(port map[string]any) { delete(port, "nodePort") })
	},
	{Kind: "Pod"}: func(o *unstructured.Unstructured, _ Destination) {
		// Admission computes the priority from the class, and rejects any other value.
		// Ephemeral containers cannot be created with a pod.
		Drop(o, "spec.nodeName", "spec.priority", "spec.ephemeralContainers")
	},
	{Kind: "PersistentVolumeClaim"}: func(o *unstructured.Unstructured, to Destination) {
		DropAnnotations(o, isBindingAnnotation)
		volume, _, _ := unstructured.NestedString(o.Object, "spec", "volumeName")
		if !to.Has(schema.GroupKind{Kind: "PersistentVolume"}, "", volume) {
			Drop(o, "spec.volumeName")
		}
	},
	{Kind: "PersistentVolume"}: func(o *unstructured.Unstructured, to Destination) {
		DropAnnotations(o, isBindingAnnotation)
		namespace, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "namespace")
		name, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "name")
		// In its own cluster, a volume without the reference would be available to any claim, with
		// the data of the former claim.
		if to.OtherCluster && !to.Has(schema.GroupKind{Kind: "PersistentVolumeClaim"}, namespace, name) {
			Drop(o, "spec.claimRef")
		}
		Drop(o, "spec.claimRef.resourceVersion")
	},
	{Group: "batch", Kind: "Job"}: func(o *unstructured.Unstructured, _ Destination) {
		// Unless manualSelector is set, the API server generates the selector and labels from
		// the Job's UID.
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
	{Kind: "ServiceAccount"}: func(o *unstructured.Unstructured, to Destination) {
		// In the same cluster the list stays: with kubernetes.io/enforce-mountable-secrets it
		// limits which Secrets pods may use.
		if to.OtherCluster {
			Drop(o, "secrets")
		}
	},
	{Kind: "Secret"}: func(o *unstructured.Unstructured, _ Destination) {
		// A token is valid only for the account that it was signed for. The token controller
		// fills in a new one.
		if kind, _, _ := unstructured.NestedString(o.Object, "type"); kind == "kubernetes.io/service-account-token" {
			Drop(o, "data")
			DropAnnotations(o, func(key string) bool { return key == "kubernetes.io/service-account.uid" })
		}
	},
}

// isBindingAnnotation reports whether the volume binder uses an annotation to record its progress.
// A claim that is marked as bound and whose volume does not exist becomes Lost permanently.
func isBindingAnnotation(annotation string) bool {
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

// ShiftGenerations shifts the observedGenerations in a status from the source's generation to the
// copy's, which starts again at 1, so that observed changes stay observed and others do not. If
// the controller had not observed even the copy's first generation, the field is removed, because
// many schemas require a minimum of 1.
func ShiftGenerations(status map[string]any, source, target int64) {
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

// eachCondition visits the conditions of a status: the items of all lists named conditions, at any
// depth (KEP-1623; the Gateway API has one such list for each parent).
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
