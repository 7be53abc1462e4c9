// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Taints keep those away who do not tolerate them, as with nodes.

var (
	effects   = []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}
	operators = []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}
)

func validateTaint(t resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	return append(validateTaintName(&t, path), validateTaintEffect(t.Effect, path.Child("effect"))...)
}

func validateTaintName(t *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	return append(errs, validateLabelValue(t.Value, path.Child("value"))...)
}

func validateTaintEffect(effect resourcev1.DeviceTaintEffect, path *field.Path) field.ErrorList {
	if effect == "" {
		return field.ErrorList{field.Required(path, "").MarkCoveredByDeclarative()}
	}
	return validateEffect(effect, path)
}

func validateEffect(effect resourcev1.DeviceTaintEffect, path *field.Path) field.ErrorList {
	if slices.Contains(effects, effect) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, effect, effects).MarkCoveredByDeclarative()}
}

func validateTolerations(tolerations []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range tolerations {
		errs = append(errs, validateToleration(&tolerations[i], path.Index(i))...)
	}
	return errs
}

func validateToleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key")).MarkCoveredByDeclarative()...)
	}
	value, operator := path.Child("value"), path.Child("operator")
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(value, t.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, validateLabelValue(t.Value, value)...)
	case "":
		errs = append(errs, field.Required(operator, "").MarkCoveredByDeclarative())
	default:
		errs = append(errs, field.NotSupported(operator, t.Operator, operators).MarkCoveredByDeclarative())
	}
	if t.Effect != "" {
		errs = append(errs, validateEffect(t.Effect, path.Child("effect"))...)
	}
	return errs
}

func validateLabelValue(value string, path *field.Path) field.ErrorList {
	return generic.Invalid(path, value, utilvalidation.IsValidLabelValue(value))
}
