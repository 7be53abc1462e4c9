// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func (c *checker) claim(claim *v1.PersistentVolumeClaimVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("claimName"), claim.ClaimName)
}

func (c *checker) ephemeral(volume *v1.EphemeralVolumeSource, path *field.Path) {
	at := path.Child("volumeClaimTemplate")
	if volume.VolumeClaimTemplate == nil {
		c.Required(at, "")
		return
	}
	c.templateMeta(&volume.VolumeClaimTemplate.ObjectMeta, at.Child("metadata"))
	c.claimSpec(&volume.VolumeClaimTemplate.Spec, false, at.Child("spec"))
}

// ValidateTemplateMeta checks the metadata of the template of a claim.
func ValidateTemplateMeta(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	c := &checker{}
	c.templateMeta(meta, path)
	return c.Errors()
}

var allowedInTemplateMeta = sets.New("Annotations", "Labels")

// templateMeta: of the metadata of a claim to be made, only labels and
// annotations are the template's to choose.
func (c *checker) templateMeta(meta *metav1.ObjectMeta, path *field.Path) {
	c.Add(apivalidation.ValidateAnnotations(meta.Annotations, path.Child("annotations"))...)
	c.Labels(path.Child("labels"), meta.Labels)
	c.onlyFields(reflect.ValueOf(*meta), allowedInTemplateMeta, "cannot be set", path)
}

// ValidatePersistentVolumeClaimSpec checks the spec of a claim, or of the
// template of one.
func ValidatePersistentVolumeClaimSpec(spec *v1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	c := &checker{}
	c.claimSpec(spec, false, path)
	return c.Errors()
}

// ValidatePersistentVolumeClaimSpecUpdate checks a changed spec. A claim that
// has named an API group before may go on to name any.
func ValidatePersistentVolumeClaimSpecUpdate(spec, old *v1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	anyGroup := old.DataSource != nil && old.DataSource.APIGroup != nil || old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil
	c := &checker{}
	c.claimSpec(spec, anyGroup, path)
	return c.Errors()
}

func (c *checker) claimSpec(spec *v1.PersistentVolumeClaimSpec, anyGroup bool, path *field.Path) {
	c.accessModes(spec.AccessModes, path.Child("accessModes"))
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
		c.quantity(v1.ResourceStorage, storage, storagePath)
	}
	c.className(spec.StorageClassName, path.Child("storageClassName"))
	check.OptionalOneOf(c, path.Child("volumeMode"), spec.VolumeMode, v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)
	c.dataSources(spec, anyGroup, path)
	c.className(spec.VolumeAttributesClassName, path.Child("volumeAttributesClassName"))
}

func (c *checker) className(name *string, path *field.Path) {
	if name != nil && *name != "" {
		c.DNSSubdomain(path, *name)
	}
}

func (c *checker) accessModes(modes []v1.PersistentVolumeAccessMode, path *field.Path) {
	if len(modes) == 0 {
		c.Required(path, "at least 1 access mode is required")
	}
	c.modes(modes, path)
}

func (c *checker) modes(modes []v1.PersistentVolumeAccessMode, path *field.Path) {
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

// dataSources checks dataSource and its successor dataSourceRef (KEP-1495).
func (c *checker) dataSources(spec *v1.PersistentVolumeClaimSpec, anyGroup bool, path *field.Path) {
	source, ref := spec.DataSource, spec.DataSourceRef
	if source != nil {
		c.dataSource(source.APIGroup, source.Kind, source.Name, anyGroup, path.Child("dataSource"))
	}
	if ref == nil {
		return
	}
	c.dataSource(ref.APIGroup, ref.Kind, ref.Name, anyGroup, path.Child("dataSourceRef"))
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

func (c *checker) dataSource(group *string, kind, name string, anyGroup bool, path *field.Path) {
	c.needAll(path, "name", name, "kind", kind)
	switch domain := ptr.Deref(group, ""); {
	case domain == "" && kind != "PersistentVolumeClaim":
		c.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	case domain != "" && !anyGroup:
		c.DNSSubdomain(path.Child("apiGroup"), domain)
	}
}

// resourceClaims checks the pod's claims to devices (KEP-4381), and remembers
// their names for the containers that use them.
func (c *specChecker) resourceClaims(path *field.Path) {
	for _, claim := range c.spec.ResourceClaims {
		if claim.Name != "" {
			c.claims.Insert(claim.Name)
		}
	}
	names := sets.Set[string]{}
	for i := range c.spec.ResourceClaims {
		if c.meta != nil && isMirror(c.meta) {
			c.Forbidden(field.NewPath(""), "static pods do not support resource claims")
			continue
		}
		claim, at := &c.spec.ResourceClaims[i], path.Index(i)
		switch {
		case !c.NonEmpty(at.Child("name"), claim.Name):
		case names.Has(claim.Name):
			c.Duplicate(at.Child("name"), claim.Name)
		default:
			c.DNSLabel(at.Child("name"), claim.Name)
			names.Insert(claim.Name)
		}
		switch {
		case claim.ResourceClaimName != nil && claim.ResourceClaimTemplateName != nil:
			c.Invalid(at, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		case claim.ResourceClaimName == nil && claim.ResourceClaimTemplateName == nil:
			c.Invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if name := claim.ResourceClaimName; name != nil {
			c.DNSSubdomain(at.Child("resourceClaimName"), *name)
		}
		if name := claim.ResourceClaimTemplateName; name != nil {
			c.DNSSubdomain(at.Child("resourceClaimTemplateName"), *name)
		}
	}
}
