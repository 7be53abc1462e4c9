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

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// memberFunc reports whether an object is part of the move.
type memberFunc func(kind schema.GroupKind, namespace, name string) bool

// Clean returns a copy of an object of the source without the fields that are valid only in its own
// cluster, and as it was before the move has paused it. Owner references stay.
func Clean(source *unstructured.Unstructured, moves memberFunc) *unstructured.Unstructured {
	return transplant.Clean(withoutPause(source), transplant.Destination{OtherCluster: true, Has: moves, IsTemporary: isMark})
}

// carryOver copies the immutable fields that the target has set from the stored object to its
// replacement. It never removes finalizers: the target has set its own, and an interrupted removal
// may have removed some at the source.
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

// recomputed are the kinds whose status describes one cluster and is computed by its controllers.
// For all other kinds the status is copied, because controllers cannot compute all of it again, for
// example for Jobs and custom resources.
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

// statusOf returns the status to copy, or nil.
func statusOf(source *unstructured.Unstructured) map[string]any {
	status, _, _ := unstructured.NestedMap(source.Object, "status")
	if len(status) == 0 || recomputed[source.GroupVersionKind().GroupKind()] {
		return nil
	}
	if source.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		// These fields count pods, which do not move.
		for _, field := range []string{"active", "ready", "terminating", "uncountedTerminatedPods"} {
			delete(status, field)
		}
	}
	if clusterapi.Has(source.GroupVersionKind().Group) {
		dropPaused(status)
	}
	return status
}

// digest returns a hash of the content that a copy is made from. It excludes owner references and
// finalizers, which change during the removal.
func digest(source *unstructured.Unstructured, moves memberFunc) string {
	content := Clean(source, moves)
	transplant.Drop(content, "metadata.ownerReferences", "metadata.finalizers")
	if status := statusOf(source); status != nil {
		content.Object["status"] = status
	}
	// Cannot fail: all values were decoded from JSON.
	text, _ := json.Marshal(content.Object)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:32]
}
