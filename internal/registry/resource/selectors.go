// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	devicecel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// This file holds the rules for selectors and configuration of devices, which classes, claims and
// allocations share. Stored values are not checked by rules that may be newer.

func validateSelectors(c *check.Checker, selectors []resourcev1.DeviceSelector, stored bool, path *field.Path) {
	list(c, selectors, declared(resourcev1.DeviceSelectorsMaxSize), path, func(c *check.Checker, s resourcev1.DeviceSelector, path *field.Path) {
		cel := path.Child("cel")
		switch {
		case s.CEL == nil:
			c.Required(cel, "")
			return
		case stored:
			return
		}
		validateExpression(c, s.CEL.Expression, cel.Child("expression"))
	})
}

func validateExpression(c *check.Checker, expression string, path *field.Path) {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		c.TooLong(path, resourcev1.CELSelectorExpressionMaxLength)
		return
	}
	environment := environment.NewExpressions
	result := deviceCompiler().CompileCELExpression(expression, devicecel.Options{EnvType: &environment})
	if result.Error != nil {
		c.Expression(path, expression, result.Error)
		return
	}
	if result.MaxCost > resourcev1.CELSelectorExpressionMaxCost {
		c.Forbidden(path, "too complex, exceeds cost limit")
	}
}

// compiler is the compiler of k8s.io/dynamic-resource-allocation, whose type is not exported.
type compiler interface {
	CompileCELExpression(expression string, options devicecel.Options) devicecel.CompilationResult
}

// deviceCompiler returns the compiler, which GetCompiler creates on first use and keeps.
func deviceCompiler() compiler {
	return devicecel.GetCompiler(devicecel.Features{EnableConsumableCapacity: true})
}

func validateConfiguration(c *check.Checker, configuration *resourcev1.DeviceConfiguration, stored bool, path *field.Path) {
	opaque := path.Child("opaque")
	if configuration.Opaque == nil {
		c.Required(opaque, "")
		return
	}
	longest := resourcev1.OpaqueParametersMaxLength
	if stored {
		longest = len(configuration.Opaque.Parameters.Raw)
	}
	c.Declared().DriverName(opaque.Child("driver"), configuration.Opaque.Driver)
	validateJSON(c, configuration.Opaque.Parameters, longest, opaque.Child("parameters"))
}

// validateJSON requires a JSON object. The error does not quote its content, which may be secret.
func validateJSON(c *check.Checker, data runtime.RawExtension, longest int, path *field.Path) {
	const omitted = "<value omitted>"
	if len(data.Raw) == 0 {
		c.Required(path, "")
		return
	}
	if len(data.Raw) > longest {
		c.TooLong(path, longest)
		return
	}
	var value any
	if err := json.Unmarshal(data.Raw, &value); err != nil {
		c.Invalid(path, omitted, fmt.Sprintf("error parsing data as JSON: %v", err))
		return
	}
	switch value.(type) {
	case nil:
		c.Required(path, "")
		return
	case map[string]any:
		return
	}
	c.Invalid(path, omitted, "must be a valid JSON object")
}
