// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// desired returns the object to create for an item: the former object without the fields that are
// no longer valid, with new UIDs as far as they are known, and on hold.
func (u *undeletion) desired(item *Item, uids map[types.UID]types.UID) *unstructured.Unstructured {
	object := transplant.Clean(item.then, transplant.Destination{Has: u.isInGraph, IsTemporary: isMark})
	if item.binding != nil {
		item.binding.setVolume(object)
	}
	if isAccountToken(object) {
		u.keepAccount(item, object)
	}
	if slices.Contains(item.then.GetFinalizers(), batchv1.JobTrackingFinalizer) {
		// The Job controller has not counted the pod yet.
		object.SetFinalizers(append(object.GetFinalizers(), batchv1.JobTrackingFinalizer))
	}
	if status := statusOf(item.then); status != nil {
		object.Object["status"] = status // If status is a subresource, putStatus writes it later.
	}
	// Keep field ownership, so that a later server-side apply does not conflict.
	putFields(object, item.managedFields())
	object.SetOwnerReferences(u.ownersOf(item))
	object = &unstructured.Unstructured{Object: transplant.Remap(object.Object, uids).(map[string]any)}
	object.SetName(item.Name())
	object.SetNamespace(item.Namespace())
	hold(object, mark{Root: u.root.FormerUID(), Of: typeAndName(u.root.then), Revision: u.revision, From: item.FormerUID(), For: typeAndName(item.then)})
	return object
}

// isInGraph reports whether an object is in the graph.
func (u *undeletion) isInGraph(kind schema.GroupKind, namespace, name string) bool {
	return u.named[objectKey{kind, namespace, name}] != nil
}

// ownersOf returns those of an item's former owner references whose owners exist.
func (u *undeletion) ownersOf(item *Item) []metav1.OwnerReference {
	return slices.DeleteFunc(item.then.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		if at := slices.IndexFunc(item.owners, func(owner *Item) bool { return owner.FormerUID() == ref.UID }); at >= 0 {
			return item.owners[at].now == nil
		}
		return !u.keeps(item, ref)
	})
}

// statusOf returns the status to restore. For most kinds it is the former status, because no
// controller can compute all of it again. It is nil for kinds whose status says what the former
// object was bound to or granted, and for pods that have not terminated.
func statusOf(then *unstructured.Unstructured) map[string]any {
	kind := then.GroupVersionKind().GroupKind()
	status, _, _ := unstructured.NestedMap(then.Object, "status")
	if len(status) == 0 || volatileStatus[kind] || kind == podKind && !hasEnded(then) {
		return nil
	}
	return status
}

// volatileStatus has the kinds whose status is not restored.
var volatileStatus = map[schema.GroupKind]bool{
	namespaceKind: true, definitionKind: true,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             true,
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: true,
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:     true,
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:               true,
	{Group: "resource.k8s.io", Kind: "ResourceClaim"}:                 true,
	{Kind: "PersistentVolume"}:                                        true,
	{Kind: "PersistentVolumeClaim"}:                                   true,
}

// hasEnded reports whether a pod has terminated. Without its status it would run again.
func hasEnded(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return pod.GroupVersionKind().GroupKind() == podKind && (phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed))
}

// gate is the scheduling gate that keeps a pod from being scheduled (KEP-3521).
const gate = ownership.HoldAnnotation

// hold puts an object on hold: for Kindred's controllers by the mark, for the scheduler by a
// scheduling gate, and for Cluster API's controllers by their own annotation.
func hold(object *unstructured.Unstructured, m mark) {
	_ = unstructured.SetNestedField(object.Object, m.text(), "metadata", "annotations", ownership.HoldAnnotation)
	kind := object.GroupVersionKind().GroupKind()
	if clusterapi.Has(kind.Group) {
		_ = unstructured.SetNestedField(object.Object, "true", "metadata", "annotations", clusterapi.PausedAnnotation)
	}
	if kind == podKind {
		gates, _, _ := unstructured.NestedSlice(object.Object, "spec", "schedulingGates")
		_ = unstructured.SetNestedSlice(object.Object, append(gates, map[string]any{"name": gate}), "spec", "schedulingGates")
	}
}

// releasePatch returns the merge patch (RFC 7386) that removes the hold of an item and restores the
// fields that the hold replaced.
func releasePatch(item *Item, now *unstructured.Unstructured, uids map[types.UID]types.UID) map[string]any {
	annotations := map[string]any{ownership.HoldAnnotation: former(item, ownership.HoldAnnotation)}
	metadata := map[string]any{"uid": string(now.GetUID()), "resourceVersion": now.GetResourceVersion(), "annotations": annotations}
	patch := map[string]any{"metadata": metadata}
	if clusterapi.Has(item.kind().Group) {
		annotations[clusterapi.PausedAnnotation] = former(item, clusterapi.PausedAnnotation)
	}
	if item.kind() == podKind {
		gates, _, _ := unstructured.NestedFieldCopy(item.then.Object, "spec", "schedulingGates")
		patch["spec"] = map[string]any{"schedulingGates": gates}
	}
	if fields := item.managedFields(); fields != nil {
		metadata["managedFields"] = transplant.Remap(fields, uids)
	}
	return patch
}

// former returns the former value of an item's annotation; nil if it had none.
func former(item *Item, annotation string) any {
	if value, found := item.then.GetAnnotations()[annotation]; found {
		return value
	}
	return nil
}

// linked returns an object with the current UIDs of the graph and with its owners. If no undeletion
// created the object, only its metadata is changed: the rest is not ours.
func (u *undeletion) linked(item *Item, now *unstructured.Unstructured, uids map[types.UID]types.UID) *unstructured.Unstructured {
	object := now.DeepCopy()
	if item.UID() != item.FormerUID() || item.lineage.created(item.UID()) {
		object = &unstructured.Unstructured{Object: transplant.Remap(object.Object, uids).(map[string]any)}
	} else if metadata, ok := transplant.Remap(object.Object["metadata"], uids).(map[string]any); ok {
		object.Object["metadata"] = metadata
	}
	object.SetName(now.GetName())
	if text, held := now.GetAnnotations()[ownership.HoldAnnotation]; held {
		_ = unstructured.SetNestedField(object.Object, text, "metadata", "annotations", ownership.HoldAnnotation)
	}
	owners := object.GetOwnerReferences()
	for _, ref := range item.then.GetOwnerReferences() {
		at := slices.IndexFunc(item.owners, func(owner *Item) bool { return owner.FormerUID() == ref.UID })
		switch {
		case ref.UID == item.FormerUID() && isRestored(item):
			ref.UID = item.UID() // The object owned itself.
		case at < 0 && isRestored(item) && u.keeps(item, ref): // The owner may have been restored since.
		case at < 0 || item.owners[at].now == nil:
			continue
		default:
			ref.UID = item.owners[at].UID()
		}
		if !slices.ContainsFunc(owners, func(other metav1.OwnerReference) bool { return other.UID == ref.UID }) {
			owners = insertOwner(owners, ref, item, uids)
		}
	}
	if isRestored(item) {
		restoreLabels(object, item, uids)
	}
	if len(owners) > 0 {
		object.SetOwnerReferences(owners)
	}
	return object
}

// insertOwner inserts a reference at its former position: before the first of the references that
// followed it.
func insertOwner(owners []metav1.OwnerReference, ref metav1.OwnerReference, item *Item, uids map[types.UID]types.UID) []metav1.OwnerReference {
	after := map[types.UID]bool{}
	seen := false
	for _, other := range item.then.GetOwnerReferences() {
		uid := other.UID
		if successor, found := uids[uid]; found {
			uid = successor
		}
		if seen {
			after[uid] = true
		}
		seen = seen || uid == ref.UID
	}
	at := slices.IndexFunc(owners, func(other metav1.OwnerReference) bool { return after[other.UID] })
	if at < 0 {
		at = len(owners)
	}
	return slices.Insert(owners, at, ref)
}

// restoreLabels sets the labels of a Job whose value is the object's own UID, which was not known
// when the object was created.
func restoreLabels(object *unstructured.Unstructured, item *Item, uids map[types.UID]types.UID) {
	labels := object.GetLabels()
	for key, value := range item.then.GetLabels() {
		if _, found := labels[key]; found || types.UID(value) != item.FormerUID() {
			continue
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = string(uids[item.FormerUID()])
	}
	object.SetLabels(labels)
}

// groupKindOf returns the kind that a reference names.
func groupKindOf(ref metav1.OwnerReference) schema.GroupKind {
	return graph.Current(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind())
}
