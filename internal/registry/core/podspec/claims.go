// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/volumespec"
)

func validateClaim(c *check.Checker, claim *v1.PersistentVolumeClaimVolumeSource, path *field.Path) {
	c.NonEmpty(path.Child("claimName"), claim.ClaimName)
}

func validateEphemeral(c *check.Checker, volume *v1.EphemeralVolumeSource, path *field.Path) {
	at := path.Child("volumeClaimTemplate")
	if volume.VolumeClaimTemplate == nil {
		c.Required(at, "")
		return
	}
	volumespec.ValidateTemplateMeta(c, &volume.VolumeClaimTemplate.ObjectMeta, at.Child("metadata"))
	volumespec.ValidatePersistentVolumeClaimSpec(c, &volume.VolumeClaimTemplate.Spec, at.Child("spec"))
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
		c.OptionalDNSSubdomain(at.Child("resourceClaimName"), claim.ResourceClaimName)
		c.OptionalDNSSubdomain(at.Child("resourceClaimTemplateName"), claim.ResourceClaimTemplateName)
	}
}
