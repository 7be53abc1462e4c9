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

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// This file is what classes, claims and allocations share: how devices are
// selected, and how they are configured. What is stored was valid once and is not
// held to new rules.

func validateSelectors(selectors []resourcev1.DeviceSelector, stored bool, path *field.Path) field.ErrorList {
	return list(selectors, declared(resourcev1.DeviceSelectorsMaxSize), path, func(s resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
		cel := path.Child("cel")
		switch {
		case s.CEL == nil:
			return field.ErrorList{field.Required(cel, "")}
		case stored:
			return nil
		}
		return validateExpression(s.CEL.Expression, cel.Child("expression"))
	})
}

func validateExpression(expression string, path *field.Path) field.ErrorList {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	environment := environment.NewExpressions
	result := deviceCompiler().CompileCELExpression(expression, devicecel.Options{EnvType: &environment})
	if result.Error != nil {
		return generic.InvalidExpression(path, expression, result.Error)
	}
	if result.MaxCost > resourcev1.CELSelectorExpressionMaxCost {
		return field.ErrorList{field.Forbidden(path, "too complex, exceeds cost limit")}
	}
	return nil
}

// compiler is that of the library, whose type has no name.
type compiler interface {
	CompileCELExpression(expression string, options devicecel.Options) devicecel.CompilationResult
}

// deviceCompiler is made by the library on the first use, and kept.
func deviceCompiler() compiler {
	return devicecel.GetCompiler(devicecel.Features{EnableConsumableCapacity: true})
}

func validateConfiguration(c *resourcev1.DeviceConfiguration, stored bool, path *field.Path) field.ErrorList {
	opaque := path.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(opaque, "")}
	}
	longest := resourcev1.OpaqueParametersMaxLength
	if stored {
		longest = len(c.Opaque.Parameters.Raw)
	}
	return append(declaredDriver(c.Opaque.Driver, opaque.Child("driver")),
		validateJSON(c.Opaque.Parameters, longest, opaque.Child("parameters"))...)
}

// validateJSON wants a JSON object, and says nothing of what is in it, which may
// be secret.
func validateJSON(data runtime.RawExtension, longest int, path *field.Path) field.ErrorList {
	const omitted = "<value omitted>"
	if len(data.Raw) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(data.Raw) > longest {
		return field.ErrorList{field.TooLong(path, "", longest)}
	}
	var value any
	if err := json.Unmarshal(data.Raw, &value); err != nil {
		return field.ErrorList{field.Invalid(path, omitted, fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	switch value.(type) {
	case nil:
		return field.ErrorList{field.Required(path, "")}
	case map[string]any:
		return nil
	}
	return field.ErrorList{field.Invalid(path, omitted, "must be a valid JSON object")}
}
