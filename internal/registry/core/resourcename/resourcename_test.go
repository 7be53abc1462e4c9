// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcename

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

var path = field.NewPath("r")

func TestValidateForContainer(t *testing.T) {
	for name, want := range map[v1.ResourceName][]string{
		"cpu":             nil,
		"hugepages-2Mi":   nil,
		"example.com/gpu": nil,
		"a b": {
			`r: Invalid value: "a b": ` + checktest.NotQualifiedName,
			`r: Invalid value: "a b": must be a standard resource for containers`,
		},
		"light": {
			`r: Invalid value: "light": must be a standard resource type or fully qualified`,
			`r: Invalid value: "light": must be a standard resource for containers`,
		},
		"pods":                   {`r: Invalid value: "pods": must be a standard resource for containers`},
		"requests.example.com/a": {`r: Invalid value: "requests.example.com/a": doesn't follow extended resource name standard`},
	} {
		t.Run(string(name), func(t *testing.T) {
			checktest.Diff(t, want, check.Run(func(c *check.Checker) { ValidateForContainer(c, name, path) }))
		})
	}
}

func TestValidateQuantity(t *testing.T) {
	for name, test := range map[string]struct {
		resource v1.ResourceName
		amount   string
		want     []string
	}{
		"fraction of a CPU":    {"cpu", "500m", nil},
		"negative":             {"cpu", "-1", []string{`r: Invalid value: "-1": must be greater than or equal to 0`}},
		"fraction of a device": {"example.com/gpu", "500m", []string{`r: Invalid value: "500m": must be an integer`}},
	} {
		t.Run(name, func(t *testing.T) {
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) {
				ValidateQuantity(c, test.resource, resource.MustParse(test.amount), path)
			}))
		})
	}
}
