// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// PersistentVolumeClaim requests a volume.
var PersistentVolumeClaim = generic.Kind[*corev1.PersistentVolumeClaim]{
	Name: "PersistentVolumeClaim", Plural: "persistentvolumeclaims", ShortNames: []string{"pvc"},
	New:        func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} },
	NewList:    func() runtime.Object { return &corev1.PersistentVolumeClaimList{} },
	Deletion:   generic.Deletion[*corev1.PersistentVolumeClaim]{ReturnObject: true},
	Generation: generic.NoGeneration,
	Metadata:   generic.Metadata{ValidateAsNew: true},
	Spec:       func(c *corev1.PersistentVolumeClaim) any { return &c.Spec },
	Status:     func(c *corev1.PersistentVolumeClaim) any { return &c.Status },
	Prepare:    prepareClaim,
	StatusUpdate: generic.Update[*corev1.PersistentVolumeClaim]{
		Prepare: func(_ context.Context, c, _ *corev1.PersistentVolumeClaim) {
			c.Status.HealthStatus = nil // alpha
		},
		Validate: validateClaimStatus,
	},
	Validate:       validateClaim,
	ValidateUpdate: validateClaimUpdate,
	Warnings: func(_ context.Context, c, _ *corev1.PersistentVolumeClaim) []string {
		var out []string
		if _, found := c.Annotations[corev1.BetaStorageClassAnnotation]; found {
			out = append(out, fmt.Sprintf("%s: %s", field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation), classMoved))
		}
		return append(out, ClaimSpecWarnings(&c.Spec, field.NewPath("spec"))...)
	},
	Hooks: generic.Hooks[*corev1.PersistentVolumeClaim]{
		Decorate: func(c *corev1.PersistentVolumeClaim) { joinDataSources(&c.Spec) },
	},
	Columns: []generic.Column[*corev1.PersistentVolumeClaim]{
		{Name: "Status", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["phase"], Cell: func(c *corev1.PersistentVolumeClaim) any { return phaseOrTerminating(c, string(c.Status.Phase)) }},
		{Name: "Volume", Description: corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeName"], Cell: func(c *corev1.PersistentVolumeClaim) any { return c.Spec.VolumeName }},
		{Name: "Capacity", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["capacity"], Cell: ofBound(func(s *corev1.PersistentVolumeClaimStatus) string {
			return s.Capacity.Storage().String()
		})},
		{Name: "Access Modes", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["accessModes"], Cell: ofBound(func(s *corev1.PersistentVolumeClaimStatus) string {
			return accessModes(s.AccessModes)
		})},
		{Name: "StorageClass", Description: "StorageClass of the pvc", Cell: func(c *corev1.PersistentVolumeClaim) any {
			return classOf(c.Annotations, c.Spec.StorageClassName)
		}},
		{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pvc", Cell: func(c *corev1.PersistentVolumeClaim) any { return orUnset(c.Spec.VolumeAttributesClassName) }},
		{Name: "VolumeMode", Wide: true, Description: corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeMode"], Cell: func(c *corev1.PersistentVolumeClaim) any { return orUnset(c.Spec.VolumeMode) }},
	},
}

// ofBound returns a cell that is empty until the claim is bound.
func ofBound(cell func(*corev1.PersistentVolumeClaimStatus) string) func(*corev1.PersistentVolumeClaim) any {
	return func(c *corev1.PersistentVolumeClaim) any {
		if c.Spec.VolumeName == "" {
			return ""
		}
		return cell(&c.Status)
	}
}

// prepareClaim completes dataSource and dataSourceRef from each other (KEP-1495).
func prepareClaim(_ context.Context, c, old *corev1.PersistentVolumeClaim) {
	dropForeignSource(&c.Spec, old)
	dropUnknownSource(&c.Spec, old)
	joinDataSources(&c.Spec)
	if old != nil {
		joinDataSources(&old.Spec)
	}
}

// dropForeignSource drops a data source in another namespace, an alpha feature.
func dropForeignSource(spec *corev1.PersistentVolumeClaimSpec, old *corev1.PersistentVolumeClaim) {
	ref := spec.DataSourceRef
	if ref != nil && ptr.Deref(ref.Namespace, "") != "" && (old == nil || old.Spec.DataSourceRef == nil) {
		spec.DataSourceRef = nil
	}
}

// dropUnknownSource drops a dataSource that is neither a claim nor a snapshot, unless dataSourceRef is
// set too, or the old object had a source.
func dropUnknownSource(spec *corev1.PersistentVolumeClaimSpec, old *corev1.PersistentVolumeClaim) {
	if old != nil && (old.Spec.DataSource != nil || old.Spec.DataSourceRef != nil) {
		return
	}
	if spec.DataSourceRef == nil && !isClaimOrSnapshot(spec.DataSource) {
		spec.DataSource = nil
	}
}

func isClaimOrSnapshot(source *corev1.TypedLocalObjectReference) bool {
	if source == nil {
		return false
	}
	switch group := ptr.Deref(source.APIGroup, ""); source.Kind {
	case "PersistentVolumeClaim":
		return group == ""
	case "VolumeSnapshot":
		return group == "snapshot.storage.k8s.io"
	}
	return false
}

// joinDataSources sets the empty one of the two fields. Only dataSourceRef can name another namespace.
func joinDataSources(spec *corev1.PersistentVolumeClaimSpec) {
	source, ref := spec.DataSource, spec.DataSourceRef
	switch {
	case source != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: clone(source.APIGroup), Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && ptr.Deref(ref.Namespace, "") == "":
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: clone(ref.APIGroup), Kind: ref.Kind, Name: ref.Name}
	}
}

func clone(s *string) *string {
	if s == nil {
		return nil
	}
	return new(*s)
}

// ClaimSpecWarnings warns of sizes that are not a whole number of bytes, in a claim or a claim
// template.
func ClaimSpecWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	resources := path.Child("resources")
	return append(fractionOfByte(spec.Resources.Requests, resources.Child("requests")),
		fractionOfByte(spec.Resources.Limits, resources.Child("limits"))...)
}

func fractionOfByte(list corev1.ResourceList, path *field.Path) []string {
	storage := list[corev1.ResourceStorage]
	if storage.MilliValue()%1000 == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", path.Key(string(corev1.ResourceStorage)), storage.String())}
}
