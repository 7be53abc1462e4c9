// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeselector

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		selector v1.NodeSelector
		want     []string
	}{
		"no terms": {want: []string{`s.nodeSelectorTerms: Required value: must have at least one node selector term`}},
		"labels": {
			selector: v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: "a", Operator: v1.NodeSelectorOpIn, Values: []string{"b"}},
				{Key: "a", Operator: v1.NodeSelectorOpIn},
				{Key: "a", Operator: v1.NodeSelectorOpExists, Values: []string{"b"}},
				{Key: "a", Operator: v1.NodeSelectorOpGt, Values: []string{"1", "2"}},
				{Key: "a b", Operator: "Near", Values: []string{"c d"}},
			}}}},
			want: []string{
				"s.nodeSelectorTerms[0].matchExpressions[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
				"s.nodeSelectorTerms[0].matchExpressions[2].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
				"s.nodeSelectorTerms[0].matchExpressions[3].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
				`s.nodeSelectorTerms[0].matchExpressions[4].operator: Invalid value: "Near": not a valid selector operator`,
				`s.nodeSelectorTerms[0].matchExpressions[4].key: Invalid value: "a b": ` + checktest.NotQualifiedName,
				`s.nodeSelectorTerms[0].matchExpressions[4].values[0]: Invalid value: "c d": ` + checktest.NotLabelValue,
			},
		},
		"fields": {
			selector: v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n"}},
				{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"N", "m"}},
				{Key: "spec.color", Operator: v1.NodeSelectorOpExists},
			}}}},
			want: []string{
				"s.nodeSelectorTerms[0].matchFields[1].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
				`s.nodeSelectorTerms[0].matchFields[1].values[0]: Invalid value: "N": ` + checktest.NotDNSSubdomain,
				`s.nodeSelectorTerms[0].matchFields[2].operator: Invalid value: "Exists": not a valid selector operator`,
				`s.nodeSelectorTerms[0].matchFields[2].key: Invalid value: "spec.color": not a valid field selector key`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) { Validate(c, &test.selector, field.NewPath("s")) }))
		})
	}
	term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a", Operator: "?"}}}
	checktest.Diff(t, []string{`t.matchExpressions[0].operator: Invalid value: "?": not a valid selector operator`},
		check.Run(func(c *check.Checker) { ValidateTerm(c, &term, field.NewPath("t")) }))
}
