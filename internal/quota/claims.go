// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// classSuffix follows the storage class in the names of its own quantities:
// gold.storageclass.storage.k8s.io/requests.storage.
const classSuffix = ".storageclass.storage.k8s.io/"

var ofClaims = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}

func claims(list generic.ListFuncByNamespace) quota.Evaluator {
	return &evaluator[*corev1.PersistentVolumeClaim]{
		counted: corev1.Resource("persistentvolumeclaims"), list: list,
		handles: func(a admission.Attributes) bool {
			// The status has the granted size and attributes.
			return createdOrUpdated(a) || a.GetSubresource() == "status"
		},
		counts: func(name corev1.ResourceName) bool {
			_, after, ofClass := strings.Cut(string(name), classSuffix)
			return slices.Contains(ofClaims, name) || ofClass && slices.Contains(ofClaims, corev1.ResourceName(after))
		},
		usage:   always(claimUsage),
		inScope: claimInScope,
		moved: func(now, old *corev1.PersistentVolumeClaim) bool {
			return !slices.Equal(attributesClasses(now), attributesClasses(old))
		},
	}
}

func claimUsage(c *corev1.PersistentVolumeClaim) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: number(1)}
	if storage := claimedStorage(c); storage != nil {
		used[corev1.ResourceRequestsStorage] = *storage
	}
	class := storagehelpers.GetPersistentVolumeClaimClass(c)
	if class == "" {
		return used
	}
	for _, name := range ofClaims {
		if quantity, found := used[name]; found {
			used[corev1.ResourceName(class+classSuffix)+name] = quantity
		}
	}
	return used
}

// claimedStorage returns the requested storage, or the granted storage if that is larger
// (KEP-1790), in whole bytes.
func claimedStorage(c *corev1.PersistentVolumeClaim) *resource.Quantity {
	storage, found := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !found {
		return nil
	}
	if granted, found := c.Status.AllocatedResources[corev1.ResourceStorage]; found && granted.Cmp(storage) > 0 {
		storage = granted
	}
	storage = storage.DeepCopy()
	storage.RoundUp(0)
	return &storage
}

// claimInScope supports only the scope VolumeAttributesClass.
func claimInScope(c *corev1.PersistentVolumeClaim, selector corev1.ScopedResourceSelectorRequirement) (bool, error) {
	if selector.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	return selects(selector, attributesClasses(c)...)
}

// attributesClasses returns the classes that the claim has, requests or is being modified to.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	classes := []string{ptr.Deref(c.Spec.VolumeAttributesClassName, ""), ptr.Deref(c.Status.CurrentVolumeAttributesClassName, "")}
	if modify := c.Status.ModifyVolumeStatus; modify != nil {
		classes = append(classes, modify.TargetVolumeAttributesClassName)
	}
	return slices.DeleteFunc(classes, func(class string) bool { return class == "" })
}
