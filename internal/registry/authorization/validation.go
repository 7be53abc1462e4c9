// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateReview(_ context.Context, r *authorizationv1.SubjectAccessReview) field.ErrorList {
	return append(validateSpec(r.Spec), mustBeEmpty(r.ObjectMeta, metav1.ObjectMeta{}, "must be empty")...)
}

func validateSelfReview(_ context.Context, r *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	errs := oneOf(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	errs = append(errs, validateAttributes(r.Spec.ResourceAttributes)...)
	return append(errs, mustBeEmpty(r.ObjectMeta, metav1.ObjectMeta{}, "must be empty")...)
}

func validateLocalReview(_ context.Context, r *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := append(validateSpec(r.Spec), mustBeEmpty(r.ObjectMeta, metav1.ObjectMeta{Namespace: r.Namespace}, "must be empty except for namespace")...)
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if a := r.Spec.NonResourceAttributes; a != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), a, "disallowed on this kind of request"))
	}
	return errs
}

func validateSpec(spec authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := oneOf(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return append(errs, validateAttributes(spec.ResourceAttributes)...)
}

func oneOf(resource *authorizationv1.ResourceAttributes, url *authorizationv1.NonResourceAttributes) field.ErrorList {
	if (resource == nil) != (url == nil) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), url, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
}

// mustBeEmpty: a review is not stored, so nothing but what the URL said, and the
// managers of its fields, can be known of it.
func mustBeEmpty(meta, empty metav1.ObjectMeta, message string) field.ErrorList {
	empty.ManagedFields = meta.ManagedFields
	if equality.Semantic.DeepEqual(meta, empty) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, message)}
}

func validateAttributes(a *authorizationv1.ResourceAttributes) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec.resourceAttributes")
	if s := a.FieldSelector; s != nil {
		selector := path.Child("fieldSelector")
		errs = append(errs, rawOrRequirements(s.RawSelector, len(s.Requirements), selector)...)
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(r,
				metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, selector.Child("requirements").Index(i))...)
		}
	}
	if s := a.LabelSelector; s != nil {
		selector := path.Child("labelSelector")
		errs = append(errs, rawOrRequirements(s.RawSelector, len(s.Requirements), selector)...)
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(r,
				metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, selector.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func rawOrRequirements(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}
