// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// retention decides on the owners of claims by persistentVolumeClaimRetentionPolicy.
type retention struct {
	set         *appsv1.StatefulSet
	whenDeleted bool // delete the claims with the StatefulSet
	whenScaled  bool // delete the claims of a pod that is scaled down
}

func retentionOf(set *appsv1.StatefulSet) retention {
	r := retention{set: set}
	if policy := set.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		r.whenDeleted = policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		r.whenScaled = policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	return r
}

// owner returns the controller that the claims of a pod should have, or nil. A surplus pod
// is one that is scaled down.
func (r retention) owner(pod *corev1.Pod, surplus bool) *metav1.OwnerReference {
	switch {
	case surplus && r.whenScaled:
		return metav1.NewControllerRef(pod, podKind)
	case r.whenDeleted:
		return metav1.NewControllerRef(r.set, kind)
	}
	return nil
}

// owners returns the owner references that a claim of a pod should have, and whether they
// differ from those that it has. References to other objects stay. A claim with a reference
// to an earlier StatefulSet or pod of the same name is left alone, because the garbage
// collector will delete it. A claim with another controller gets no controller of ours.
func (r retention) owners(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, surplus bool) (refs []metav1.OwnerReference, differ bool) {
	if isStale(claim, r.set, kind) || isStale(claim, pod, podKind) {
		return claim.OwnerReferences, false
	}
	var ours []metav1.OwnerReference
	for _, ref := range claim.OwnerReferences {
		if names(ref, r.set, kind) || names(ref, pod, podKind) {
			ours = append(ours, ref)
		} else {
			refs = append(refs, ref)
		}
	}
	want := r.owner(pod, surplus)
	if want == nil || slices.ContainsFunc(refs, isController) {
		return refs, len(ours) > 0
	}
	differ = len(ours) != 1 || ours[0].UID != want.UID || !isController(ours[0])
	return append(refs, *want), differ
}

// conflicts reports whether another controller of the claim keeps the policy from being
// applied.
func (r retention) conflicts(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	if !r.whenDeleted && !r.whenScaled {
		return false
	}
	return slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return isController(ref) && ref.UID != r.set.UID && ref.UID != pod.UID
	})
}

// blocks reports whether a claim is about to be deleted with an earlier pod of this name, so
// that a new pod would lose it.
func (r retention) blocks(claim *corev1.PersistentVolumeClaim, podName string) bool {
	if !r.whenScaled {
		return false
	}
	missing := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName}}
	return isStale(claim, missing, podKind)
}

func isController(ref metav1.OwnerReference) bool { return ref.Controller != nil && *ref.Controller }

// names reports whether a reference has the kind and name of an object.
func names(ref metav1.OwnerReference, obj client.Object, kind schema.GroupVersionKind) bool {
	return ref.APIVersion == kind.GroupVersion().String() && ref.Kind == kind.Kind && ref.Name == obj.GetName()
}

// isStale reports whether a claim references another object with the kind and name of obj.
func isStale(claim *corev1.PersistentVolumeClaim, obj client.Object, kind schema.GroupVersionKind) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return names(ref, obj, kind) && ref.UID != obj.GetUID()
	})
}
