// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumespec

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/resourcename"
)

// ValidateTemplateMeta checks the metadata of a template of claims, which may set only labels and
// annotations.
func ValidateTemplateMeta(c *check.Checker, meta *metav1.ObjectMeta, path *field.Path) {
	c.Add(apivalidation.ValidateAnnotations(meta.Annotations, path.Child("annotations"))...)
	c.Labels(path.Child("labels"), meta.Labels)
	c.OnlyFields(path, *meta, allowedInTemplateMeta, "cannot be set")
}

var allowedInTemplateMeta = sets.New("Annotations", "Labels")

// ValidatePersistentVolumeClaimSpecUpdate checks a changed spec. If the old one names an API group,
// the new one may name any.
func ValidatePersistentVolumeClaimSpecUpdate(c *check.Checker, spec, old *v1.PersistentVolumeClaimSpec, path *field.Path) {
	anyGroup := old.DataSource != nil && old.DataSource.APIGroup != nil || old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil
	validateClaimSpec(c, spec, anyGroup, path)
}

// ValidatePersistentVolumeClaimSpec checks the spec of a claim or of a template of claims.
func ValidatePersistentVolumeClaimSpec(c *check.Checker, spec *v1.PersistentVolumeClaimSpec, path *field.Path) {
	validateClaimSpec(c, spec, false, path)
}

func validateClaimSpec(c *check.Checker, spec *v1.PersistentVolumeClaimSpec, anyGroup bool, path *field.Path) {
	validateAccessModes(c, spec.AccessModes, path.Child("accessModes"))
	if spec.Selector != nil {
		c.LabelSelector(path.Child("selector"), spec.Selector)
	}
	storagePath := path.Child("resources").Key(string(v1.ResourceStorage))
	switch storage, found := spec.Resources.Requests[v1.ResourceStorage]; {
	case !found:
		c.Required(storagePath, "")
	case storage.Sign() <= 0:
		c.Invalid(storagePath, storage.String(), "must be greater than zero")
	default:
		resourcename.ValidateQuantity(c, v1.ResourceStorage, storage, storagePath)
	}
	c.DNSSubdomainOrEmpty(path.Child("storageClassName"), ptr.Deref(spec.StorageClassName, ""))
	check.OptionalOneOf(c, path.Child("volumeMode"), spec.VolumeMode, v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)
	validateDataSources(c, spec, anyGroup, path)
	c.DNSSubdomainOrEmpty(path.Child("volumeAttributesClassName"), ptr.Deref(spec.VolumeAttributesClassName, ""))
}

func validateAccessModes(c *check.Checker, modes []v1.PersistentVolumeAccessMode, path *field.Path) {
	if len(modes) == 0 {
		c.Required(path, "at least 1 access mode is required")
	}
	validateModes(c, modes, path)
}

func validateModes(c *check.Checker, modes []v1.PersistentVolumeAccessMode, path *field.Path) {
	alone, shared := false, false
	for _, mode := range modes {
		check.OneOf(c, path, mode, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOnce, v1.ReadWriteOncePod)
		switch mode {
		case v1.ReadWriteOncePod:
			alone = true
		case v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOnce:
			shared = true
		}
	}
	if alone && shared {
		c.Forbidden(path, "may not use ReadWriteOncePod with other access modes")
	}
}

// validateDataSources checks dataSource and its successor dataSourceRef (KEP-1495).
func validateDataSources(c *check.Checker, spec *v1.PersistentVolumeClaimSpec, anyGroup bool, path *field.Path) {
	source, ref := spec.DataSource, spec.DataSourceRef
	if source != nil {
		validateDataSource(c, source.APIGroup, source.Kind, source.Name, anyGroup, path.Child("dataSource"))
	}
	if ref == nil {
		return
	}
	validateDataSource(c, ref.APIGroup, ref.Kind, ref.Name, anyGroup, path.Child("dataSourceRef"))
	namespace := ptr.Deref(ref.Namespace, "")
	if namespace != "" {
		c.Invalid(path.Child("dataSourceRef", "namespace"), namespace, apivalidation.ValidateNamespaceName(namespace, false)...)
	}
	switch {
	case source == nil:
	case namespace != "":
		c.Invalid(path, path.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified")
	case !ptr.Equal(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		c.Invalid(path, path.Child("dataSource"), "must match dataSourceRef")
	}
}

func validateDataSource(c *check.Checker, group *string, kind, name string, anyGroup bool, path *field.Path) {
	c.AllNonEmpty(path, "name", name, "kind", kind)
	switch domain := ptr.Deref(group, ""); {
	case domain == "" && kind != "PersistentVolumeClaim":
		c.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	case domain != "" && !anyGroup:
		c.DNSSubdomain(path.Child("apiGroup"), domain)
	}
}
