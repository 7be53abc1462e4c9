// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// This file holds the rules for taints of devices and for their tolerations.

var (
	effects   = []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}
	operators = []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}
)

func validateTaint(c *check.Checker, t resourcev1.DeviceTaint, path *field.Path) {
	validateTaintName(c, &t, path)
	validateTaintEffect(c, t.Effect, path.Child("effect"))
}

func validateTaintName(c *check.Checker, t *resourcev1.DeviceTaint, path *field.Path) {
	c.LabelName(path.Child("key"), t.Key)
	c.LabelValue(path.Child("value"), t.Value)
}

func validateTaintEffect(c *check.Checker, effect resourcev1.DeviceTaintEffect, path *field.Path) {
	if effect == "" {
		c.Declared().Required(path, "")
		return
	}
	validateEffect(c, effect, path)
}

func validateEffect(c *check.Checker, effect resourcev1.DeviceTaintEffect, path *field.Path) {
	check.OneOf(c.Declared(), path, effect, effects...)
}

func validateTolerations(c *check.Checker, tolerations []resourcev1.DeviceToleration, path *field.Path) {
	for i := range tolerations {
		validateToleration(c, &tolerations[i], path.Index(i))
	}
}

func validateToleration(c *check.Checker, t *resourcev1.DeviceToleration, path *field.Path) {
	if t.Key != "" {
		c.Declared().LabelName(path.Child("key"), t.Key)
	}
	value, operator := path.Child("value"), path.Child("operator")
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			c.Invalid(value, t.Value, "must be empty for operator `Exists`")
		}
	case resourcev1.DeviceTolerationOpEqual:
		c.LabelValue(value, t.Value)
	case "":
		c.Declared().Required(operator, "")
	default:
		check.OneOf(c.Declared(), operator, t.Operator, operators...)
	}
	if t.Effect != "" {
		validateEffect(c, t.Effect, path.Child("effect"))
	}
}
