// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/resourcename"
	"github.com/kindred-project/kindred/internal/registry/core/volumespec"
)

func validateClaim(_ context.Context, c *check.Checker, claim *corev1.PersistentVolumeClaim) {
	volumespec.ValidatePersistentVolumeClaimSpec(c, &claim.Spec, field.NewPath("spec"))
}

// validateClaimUpdate forbids most changes, because the volume was selected for the claim's spec.
// The volume can be set once, a class can be set later, and the size and the attributes class of a
// bound claim can change.
func validateClaimUpdate(_ context.Context, c *check.Checker, claim, old *corev1.PersistentVolumeClaim) {
	volumespec.ValidatePersistentVolumeClaimSpecUpdate(c, &claim.Spec, &old.Spec, field.NewPath("spec"))
	if !classFromAnnotation(claim, old) {
		validateClassAnnotation(c, claim.Annotations, old.Annotations)
	}
	if allowed := allowedChanges(claim, old); !equality.Semantic.DeepEqual(*allowed, old.Spec) {
		c.Forbidden(field.NewPath("spec"),
			fmt.Sprintf("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", diff.Diff(old.Spec, *allowed)))
	}
	validateShrinking(c, claim, old)
	c.Immutable(field.NewPath("volumeMode"), claim.Spec.VolumeMode, old.Spec.VolumeMode)
	validateClaimAttributes(c, claim, old)
}

// allowedChanges returns the new spec with the allowed changes reverted. Any remaining difference
// is an error.
func allowedChanges(c, old *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec {
	spec := c.Spec.DeepCopy()
	if old.Spec.VolumeName == "" {
		spec.VolumeName = ""
	}
	if classFromAnnotation(c, old) || classFromNothing(c, old) {
		spec.StorageClassName = nil
	}
	if c.Status.Phase != corev1.ClaimBound {
		return spec
	}
	if spec.Resources.Requests != nil {
		spec.Resources.Requests[corev1.ResourceStorage] = old.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	spec.VolumeAttributesClassName = old.Spec.VolumeAttributesClassName
	return spec
}

// classFromAnnotation reports whether the class moves from the old annotation to the field. The
// annotation may be removed.
func classFromAnnotation(c, old *corev1.PersistentVolumeClaim) bool {
	was, found := old.Annotations[corev1.BetaStorageClassAnnotation]
	now, kept := c.Annotations[corev1.BetaStorageClassAnnotation]
	return found && old.Spec.StorageClassName == nil && ptr.Deref(c.Spec.StorageClassName, "") == was && c.Spec.StorageClassName != nil && (!kept || now == was)
}

// classFromNothing reports whether a claim without a class gets one (KEP-3333).
func classFromNothing(c, old *corev1.PersistentVolumeClaim) bool {
	was, found := old.Annotations[corev1.BetaStorageClassAnnotation]
	return old.Spec.StorageClassName == nil && c.Spec.StorageClassName != nil && (!found || *c.Spec.StorageClassName == was)
}

func validateClassAnnotation(c *check.Checker, annotations, old map[string]string) {
	const key = corev1.BetaStorageClassAnnotation
	if annotations[key] != old[key] {
		c.Invalid(field.NewPath("metadata", "annotations", key), annotations[key], validation.FieldImmutableErrorMsg)
	}
}

// validateShrinking allows a failed expansion to be reduced, to a size above the current capacity
// (KEP-1790).
func validateShrinking(c *check.Checker, claim, old *corev1.PersistentVolumeClaim) {
	size, was, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage], old.Status.Capacity[corev1.ResourceStorage]
	if size.Cmp(was) >= 0 || size.Cmp(has) > 0 {
		return
	}
	c.Forbidden(field.NewPath("spec", "resources", "requests", "storage"), "field can not be less than status.capacity")
}

// validateClaimAttributes allows the attributes class to be changed, but not to be removed
// (KEP-3751).
func validateClaimAttributes(c *check.Checker, claim, old *corev1.PersistentVolumeClaim) {
	path, class := field.NewPath("spec", "volumeAttributesClassName"), claim.Spec.VolumeAttributesClassName
	switch {
	case old.Status.CurrentVolumeAttributesClassName == nil || ptr.Equal(class, old.Spec.VolumeAttributesClassName):
	case class == nil:
		c.Forbidden(path, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
	case *class == "":
		c.Forbidden(path, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
}

var resizeStatuses = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
}

func validateClaimStatus(_ context.Context, c *check.Checker, claim, _ *corev1.PersistentVolumeClaim) {
	status := field.NewPath("status")
	for _, name := range sortedKeys(claim.Status.Capacity) {
		resourcename.ValidateAmount(c, claim.Status.Capacity[name], status.Child("capacity").Key(string(name)))
	}
	statuses := status.Child("allocatedResourceStatuses")
	for _, name := range sortedKeys(claim.Status.AllocatedResourceStatuses) {
		validateClaimedResource(c, name, statuses)
		if !slices.Contains(resizeStatuses, claim.Status.AllocatedResourceStatuses[name]) {
			c.Add(field.NotSupported(statuses, name, slices.Sorted(slices.Values(resizeStatuses))))
		}
	}
	allocated := status.Child("allocatedResources")
	for _, name := range sortedKeys(claim.Status.AllocatedResources) {
		validateAllocated(c, name, claim.Status.AllocatedResources, allocated)
	}
}

func validateAllocated(c *check.Checker, name corev1.ResourceName, list corev1.ResourceList, path *field.Path) {
	at := path.Key(string(name))
	valid := c.Passes(func() { validateClaimedResource(c, name, path) }) &&
		c.Passes(func() { resourcename.ValidateAmount(c, list[name], at) })
	if valid {
		resourcename.ValidateQuantity(c, corev1.ResourceStorage, list[name], at)
	}
}

// validateClaimedResource refuses Kubernetes' own resources other than storage.
func validateClaimedResource(c *check.Checker, name corev1.ResourceName, path *field.Path) {
	problems := utilvalidation.IsQualifiedName(string(name))
	c.Invalid(path, string(name), problems...)
	if len(problems) == 0 && resourcename.IsNative(name) && name != corev1.ResourceStorage {
		c.Add(field.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage}))
	}
}

// sortedKeys returns the keys in order, for errors in a stable order.
func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
