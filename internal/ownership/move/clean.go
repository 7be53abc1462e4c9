// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// has is whether an object is part of what moves.
type has func(kind schema.GroupKind, namespace, name string) bool

// Clean is an object of the source without what only its own cluster could say of it: what
// servers set, and per kind what was allocated or bound there. Owners stay.
func Clean(source *unstructured.Unstructured, moves has) *unstructured.Unstructured {
	object := source.DeepCopy()
	delete(object.Object, "status")
	metadata, _, _ := unstructured.NestedMap(object.Object, "metadata")
	kept := map[string]any{}
	for _, field := range []string{"name", "namespace", "labels", "annotations", "ownerReferences"} {
		if value, found := metadata[field]; found {
			kept[field] = value
		}
	}
	object.Object["metadata"] = kept
	dropAnnotations(object, isMark)
	if finalizers := slices.DeleteFunc(source.GetFinalizers(), ofTheCluster); len(finalizers) > 0 {
		object.SetFinalizers(finalizers)
	}
	if clean, found := cleaners[object.GroupVersionKind().GroupKind()]; found {
		clean(object, moves)
	}
	return object
}

// ofTheCluster is whether a finalizer is one of Kubernetes' own (protection, propagation
// of a deletion), which the target sets itself where it needs them.
func ofTheCluster(finalizer string) bool {
	domain, _, qualified := strings.Cut(finalizer, "/")
	return !qualified || domain == "kubernetes.io" || domain == "batch.kubernetes.io" || domain == "service.kubernetes.io"
}

func dropAnnotations(object *unstructured.Unstructured, drop func(string) bool) {
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

func drop(object *unstructured.Unstructured, paths ...string) {
	for _, path := range paths {
		unstructured.RemoveNestedField(object.Object, strings.Split(path, ".")...)
	}
}

// cleaners say what of a kind is not taken along.
var cleaners = map[schema.GroupKind]func(*unstructured.Unstructured, has){
	{Kind: "Service"}: func(o *unstructured.Unstructured, _ has) {
		// The addresses are those of the source's range. A headless Service keeps None,
		// for that is a choice.
		if ip, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP"); ip != "None" {
			drop(o, "spec.clusterIP", "spec.clusterIPs")
		}
		drop(o, "spec.healthCheckNodePort")
		eachPort(o, func(port map[string]any) { delete(port, "nodePort") })
	},
	{Kind: "Pod"}: func(o *unstructured.Unstructured, _ has) {
		// Admission computes the priority from the class, and refuses one that differs.
		// Ephemeral containers cannot be created with a pod.
		drop(o, "spec.nodeName", "spec.priority", "spec.ephemeralContainers")
	},
	{Kind: "PersistentVolumeClaim"}: func(o *unstructured.Unstructured, moves has) {
		dropAnnotations(o, ofBinding)
		volume, _, _ := unstructured.NestedString(o.Object, "spec", "volumeName")
		if !moves(schema.GroupKind{Kind: "PersistentVolume"}, "", volume) {
			drop(o, "spec.volumeName")
		}
	},
	{Kind: "PersistentVolume"}: func(o *unstructured.Unstructured, moves has) {
		dropAnnotations(o, ofBinding)
		namespace, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "namespace")
		name, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "name")
		if !moves(schema.GroupKind{Kind: "PersistentVolumeClaim"}, namespace, name) {
			drop(o, "spec.claimRef")
		}
		drop(o, "spec.claimRef.resourceVersion")
	},
	{Group: "batch", Kind: "Job"}: func(o *unstructured.Unstructured, _ has) {
		// Selector and labels are made from the Job's own UID, by the API server, unless
		// the selector was written by hand.
		if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); manual {
			return
		}
		drop(o, "spec.selector")
		for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
			for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
				unstructured.RemoveNestedField(o.Object, append(slices.Clone(path), label)...)
			}
		}
	},
	{Kind: "ServiceAccount"}: func(o *unstructured.Unstructured, _ has) { drop(o, "secrets") },
	{Kind: "Secret"}: func(o *unstructured.Unstructured, _ has) {
		// A token is worth something where it was signed only; the target fills in its own.
		if kind, _, _ := unstructured.NestedString(o.Object, "type"); kind == "kubernetes.io/service-account-token" {
			drop(o, "data")
			dropAnnotations(o, func(key string) bool { return key == "kubernetes.io/service-account.uid" })
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

// carryOver takes along, into what replaces an object of the target, the fields which the
// target gave it and which may not change.
func carryOver(desired, stored *unstructured.Unstructured) {
	desired.SetResourceVersion(stored.GetResourceVersion())
	desired.SetUID(stored.GetUID())
	for _, path := range carried[desired.GroupVersionKind().GroupKind()] {
		fields := strings.Split(path, ".")
		_, sent, _ := unstructured.NestedFieldNoCopy(desired.Object, fields...)
		value, found, _ := unstructured.NestedFieldCopy(stored.Object, fields...)
		if found && !sent {
			_ = unstructured.SetNestedField(desired.Object, value, fields...)
		}
	}
	if desired.GetKind() == "Job" {
		labels, _, _ := unstructured.NestedStringMap(stored.Object, "spec", "template", "metadata", "labels")
		for key, value := range labels {
			_ = unstructured.SetNestedField(desired.Object, value, "spec", "template", "metadata", "labels", key)
		}
	}
}

var carried = map[schema.GroupKind][]string{
	{Kind: "Service"}:               {"spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.healthCheckNodePort"},
	{Kind: "PersistentVolumeClaim"}: {"spec.volumeName"},
	{Kind: "PersistentVolume"}:      {"spec.claimRef"},
	{Group: "batch", Kind: "Job"}:   {"spec.selector"},
	{Kind: "Secret"}:                {"data"},
}

// recomputed are the kinds whose status says what one cluster has of them, and which that
// cluster's controllers write from what they see. Of any other kind it is copied: of a Job
// or of a custom resource it is memory that cannot be had again.
var recomputed = map[schema.GroupKind]bool{
	{Kind: "Pod"}: true, {Kind: "Service"}: true, {Kind: "PersistentVolume"}: true,
	{Kind: "PersistentVolumeClaim"}: true, {Kind: "ReplicationController"}: true,
	{Kind: "ResourceQuota"}:                                           true,
	{Group: "apps", Kind: "Deployment"}:                               true,
	{Group: "apps", Kind: "ReplicaSet"}:                               true,
	{Group: "apps", Kind: "DaemonSet"}:                                true,
	{Group: "apps", Kind: "StatefulSet"}:                              true,
	{Group: "networking.k8s.io", Kind: "Ingress"}:                     true,
	{Group: "policy", Kind: "PodDisruptionBudget"}:                    true,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:           true,
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:               true,
	{Group: "resource.k8s.io", Kind: "ResourceClaim"}:                 true,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             true,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: true,
}

// statusOf is the status that is copied, or nil.
func statusOf(source *unstructured.Unstructured) map[string]any {
	status, _, _ := unstructured.NestedMap(source.Object, "status")
	if len(status) == 0 || recomputed[source.GroupVersionKind().GroupKind()] {
		return nil
	}
	if source.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		// They count pods that are not taken along.
		for _, field := range []string{"active", "ready", "terminating", "uncountedTerminatedPods"} {
			delete(status, field)
		}
	}
	return status
}

// observe shifts what a status says of generations, which count anew at the target: what was
// seen by its controller stays seen, and what was not, stays to be seen.
func observe(status map[string]any, source, target int64) {
	shift := func(fields map[string]any) {
		if seen, ok := fields["observedGeneration"].(int64); ok {
			fields["observedGeneration"] = max(0, target-(source-seen))
		}
	}
	shift(status)
	conditions, _ := status["conditions"].([]any)
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok {
			shift(fields)
		}
	}
}

// digest is the content of an object that a copy is made from. It has neither owners nor
// finalizers, for those change while the object is taken away.
func digest(source *unstructured.Unstructured, moves has) string {
	content := Clean(source, moves)
	drop(content, "metadata.ownerReferences", "metadata.finalizers")
	if status := statusOf(source); status != nil {
		content.Object["status"] = status
	}
	// Cannot fail: it was decoded from JSON.
	text, _ := json.Marshal(content.Object)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:32]
}
