// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeselector checks node selectors, with which pods, volumes and devices choose nodes.
package nodeselector

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// ValidateTerm checks one term of a node selector.
func ValidateTerm(c *check.Checker, term *v1.NodeSelectorTerm, path *field.Path) {
	validateTerm(c, term, true, path)
}

// ValidatePreference is ValidateTerm for a term that nodes need not match: its values may be ones that
// no label can have.
func ValidatePreference(c *check.Checker, term *v1.NodeSelectorTerm, path *field.Path) {
	validateTerm(c, term, false, path)
}

// Validate checks the node selector at path.
func Validate(c *check.Checker, selector *v1.NodeSelector, path *field.Path) {
	at := path.Child("nodeSelectorTerms")
	if len(selector.NodeSelectorTerms) == 0 {
		c.Required(at, "must have at least one node selector term")
	}
	for i := range selector.NodeSelectorTerms {
		validateTerm(c, &selector.NodeSelectorTerms[i], true, at.Index(i))
	}
}

func validateTerm(c *check.Checker, term *v1.NodeSelectorTerm, mustBeLabels bool, path *field.Path) {
	for i := range term.MatchExpressions {
		validateLabels(c, &term.MatchExpressions[i], mustBeLabels, path.Child("matchExpressions").Index(i))
	}
	for i := range term.MatchFields {
		validateField(c, &term.MatchFields[i], path.Child("matchFields").Index(i))
	}
}

func validateLabels(c *check.Checker, requirement *v1.NodeSelectorRequirement, mustBeLabels bool, path *field.Path) {
	at := path.Child("values")
	switch requirement.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(requirement.Values) == 0 {
			c.Required(at, "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		if len(requirement.Values) > 0 {
			c.Forbidden(at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(requirement.Values) != 1 {
			c.Required(at, "must be specified single value when `operator` is 'Lt' or 'Gt'")
		}
	default:
		c.Invalid(path.Child("operator"), requirement.Operator, "not a valid selector operator")
	}
	c.LabelName(path.Child("key"), requirement.Key)
	if !mustBeLabels {
		return
	}
	for i, value := range requirement.Values {
		c.LabelValue(at.Index(i), value)
	}
}

// validateField checks a requirement on a node's fields; there is one, its name.
func validateField(c *check.Checker, requirement *v1.NodeSelectorRequirement, path *field.Path) {
	switch requirement.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(requirement.Values) != 1 {
			c.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
	default:
		c.Invalid(path.Child("operator"), requirement.Operator, "not a valid selector operator")
	}
	if requirement.Key != metav1.ObjectNameField {
		c.Invalid(path.Child("key"), requirement.Key, "not a valid field selector key")
		return
	}
	for i, value := range requirement.Values {
		c.DNSSubdomain(path.Child("values").Index(i), value)
	}
}
