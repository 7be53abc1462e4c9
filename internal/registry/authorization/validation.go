// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func validateReview(c *check.Checker, r *authorizationv1.SubjectAccessReview) {
	validateSpec(c, r.Spec)
	mustBeEmpty(c, r.ObjectMeta, metav1.ObjectMeta{}, "must be empty")
}

func validateSelfReview(c *check.Checker, r *authorizationv1.SelfSubjectAccessReview) {
	oneOf(c, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	validateAttributes(c, r.Spec.ResourceAttributes)
	mustBeEmpty(c, r.ObjectMeta, metav1.ObjectMeta{}, "must be empty")
}

func validateLocalReview(c *check.Checker, r *authorizationv1.LocalSubjectAccessReview) {
	validateSpec(c, r.Spec)
	mustBeEmpty(c, r.ObjectMeta, metav1.ObjectMeta{Namespace: r.Namespace}, "must be empty except for namespace")
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		c.Invalid(field.NewPath("spec.resourceAttributes.namespace"), a.Namespace, "must match metadata.namespace")
	}
	if a := r.Spec.NonResourceAttributes; a != nil {
		c.Invalid(field.NewPath("spec.nonResourceAttributes"), a, "disallowed on this kind of request")
	}
}

func validateSpec(c *check.Checker, spec authorizationv1.SubjectAccessReviewSpec) {
	oneOf(c, spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		c.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified")
	}
	validateAttributes(c, spec.ResourceAttributes)
}

func oneOf(c *check.Checker, resource *authorizationv1.ResourceAttributes, url *authorizationv1.NonResourceAttributes) {
	if (resource == nil) == (url == nil) {
		c.Invalid(field.NewPath("spec"), url, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
}

// mustBeEmpty requires empty metadata, except managedFields and fields in empty: a review is not
// stored.
func mustBeEmpty(c *check.Checker, meta, empty metav1.ObjectMeta, message string) {
	empty.ManagedFields = meta.ManagedFields
	if !equality.Semantic.DeepEqual(meta, empty) {
		c.Invalid(field.NewPath("metadata"), meta, message)
	}
}

func validateAttributes(c *check.Checker, a *authorizationv1.ResourceAttributes) {
	if a == nil {
		return
	}
	path := field.NewPath("spec.resourceAttributes")
	if s := a.FieldSelector; s != nil {
		selector := path.Child("fieldSelector")
		rawOrRequirements(c, s.RawSelector, len(s.Requirements), selector)
		for i, r := range s.Requirements {
			c.Add(metav1validation.ValidateFieldSelectorRequirement(r,
				metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, selector.Child("requirements").Index(i))...)
		}
	}
	if s := a.LabelSelector; s != nil {
		selector := path.Child("labelSelector")
		rawOrRequirements(c, s.RawSelector, len(s.Requirements), selector)
		for i, r := range s.Requirements {
			c.Add(metav1validation.ValidateLabelSelectorRequirement(r,
				metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, selector.Child("requirements").Index(i))...)
		}
	}
}

func rawOrRequirements(c *check.Checker, raw string, requirements int, path *field.Path) {
	switch {
	case raw != "" && requirements > 0:
		c.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")
	case raw == "" && requirements == 0:
		c.Required(path.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))
	}
}
