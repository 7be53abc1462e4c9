// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"cmp"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// attributes converts a review to the attributes that authorizers take.
func attributes(subject user.Info, resource *authorizationv1.ResourceAttributes, url *authorizationv1.NonResourceAttributes) authorizer.AttributesRecord {
	if resource == nil {
		return authorizer.AttributesRecord{User: subject, Path: url.Path, Verb: url.Verb}
	}
	a := authorizer.AttributesRecord{
		User: subject, ResourceRequest: true,
		Verb: resource.Verb, Namespace: resource.Namespace, Name: resource.Name,
		APIGroup: resource.Group, APIVersion: cmp.Or(resource.Version, "*"),
		Resource: resource.Resource, Subresource: resource.Subresource,
	}
	if s := resource.FieldSelector; s != nil {
		a.FieldSelectorRequirements, a.FieldSelectorParsingErr = fieldRequirements(s)
	}
	if s := resource.LabelSelector; s != nil {
		a.LabelSelectorRequirements, a.LabelSelectorParsingErr = labelRequirements(s)
	}
	return a
}

// fieldRequirements drops requirements that it does not understand. Requirements are ANDed, so
// dropping one asks for more permissions, never for fewer (KEP-4601).
func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if s.RawSelector != "" {
		selector, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return selector.Requirements(), nil
	}
	operators := map[metav1.FieldSelectorOperator]selection.Operator{
		metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals,
	}
	var out fields.Requirements
	var errs []error
	for _, r := range s.Requirements {
		operator, known := operators[r.Operator]
		switch {
		case len(r.Values) > 1:
			errs = append(errs, errors.New("fieldSelectors do not yet support multiple values"))
		case r.Operator == metav1.FieldSelectorOpExists, r.Operator == metav1.FieldSelectorOpDoesNotExist:
			errs = append(errs, fmt.Errorf("fieldSelectors do not yet support %v", r.Operator))
		case !known:
			errs = append(errs, fmt.Errorf("%q is not a valid field selector operator", r.Operator))
		case len(r.Values) == 0:
			errs = append(errs, fmt.Errorf("fieldSelectors %s must have one value", operatorWord(r.Operator)))
		default:
			out = append(out, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
		}
	}
	return out, errors.Join(errs...)
}

func operatorWord(o metav1.FieldSelectorOperator) string {
	if o == metav1.FieldSelectorOpNotIn {
		return "not in"
	}
	return "in"
}

func labelRequirements(s *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if s.RawSelector != "" {
		selector, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, err
		}
		requirements, _ := selector.Requirements()
		return requirements, nil
	}
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	var out labels.Requirements
	var errs []error
	for _, r := range s.Requirements {
		operator, known := operators[r.Operator]
		if !known {
			errs = append(errs, fmt.Errorf("%q is not a valid label selector operator", r.Operator))
			continue
		}
		requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, *requirement)
	}
	return out, errors.Join(errs...)
}
