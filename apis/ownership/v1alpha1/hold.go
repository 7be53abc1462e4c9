// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HoldAnnotation pauses Kindred's controllers for one object. While the annotation is set, to
// any value, no controller creates, deletes, adopts or releases anything for the object, or
// writes its status. It takes effect on the objects that controllers reconcile: Deployments,
// ReplicaSets, ReplicationControllers, DaemonSets, Jobs (their TTL does not expire them, and
// their pods keep the tracking finalizer), Services (their endpoints stay as they are),
// PersistentVolumes and their claims (they are not bound, released or deleted, by the scheduler
// either), and pods, which are then not cleaned up. Controllers never copy it to dependents.
//
// It lets a client restore a graph of objects one by one, without a controller that recreates
// what is still missing. The client creates the objects with the annotation and removes it
// when the graph is complete; controllers then resume at once. To remove an annotation that
// was left behind:
//
//	kubectl annotate deployment/web ownership.kindred.dev/hold-
//
// The annotation does not prevent deletion: the object can be deleted and is garbage collected
// with its owners. It has no effect once the object is being deleted.
const HoldAnnotation = "ownership.kindred.dev/hold"

// IsHeld reports whether an object is on hold: controllers must leave it and its children alone.
// Removing the hold updates the object and so wakes its controller. An object that is being deleted
// is not on hold: nothing is created for it any more, and its controller may have to remove a
// finalizer.
func IsHeld(object metav1.Object) bool {
	_, held := object.GetAnnotations()[HoldAnnotation]
	return held && object.GetDeletionTimestamp() == nil
}
