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

	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// has reports whether an object is part of what moves.
type has func(kind schema.GroupKind, namespace, name string) bool

// Clean is an object of the source without what only its own cluster could say of it.
// Owners stay.
func Clean(source *unstructured.Unstructured, moves has) *unstructured.Unstructured {
	return transplant.Clean(source, transplant.Destination{OtherCluster: true, Has: moves, IsTemporary: isMark})
}

// carryOver copies, into the replacement of an object of the target, those fields that the target
// has set and that may not change. Finalizers are only ever added: the target has set its own,
// and the source has lost those that a removal took off before it was interrupted.
func carryOver(desired, stored *unstructured.Unstructured) {
	desired.SetResourceVersion(stored.GetResourceVersion())
	desired.SetUID(stored.GetUID())
	finalizers := stored.GetFinalizers()
	for _, name := range desired.GetFinalizers() {
		if !slices.Contains(finalizers, name) {
			finalizers = append(finalizers, name)
		}
	}
	if len(finalizers) > 0 {
		desired.SetFinalizers(finalizers)
	}
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

// digest is the content of an object that a copy is made from. It has neither owners nor
// finalizers, for those change while the object is taken away.
func digest(source *unstructured.Unstructured, moves has) string {
	content := Clean(source, moves)
	transplant.Drop(content, "metadata.ownerReferences", "metadata.finalizers")
	if status := statusOf(source); status != nil {
		content.Object["status"] = status
	}
	// Cannot fail: it was decoded from JSON.
	text, _ := json.Marshal(content.Object)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:32]
}
