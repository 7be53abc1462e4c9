// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// ValidatePodLogOptions checks the options of a request for a container's log.
func ValidatePodLogOptions(c *check.Checker, options *v1.PodLogOptions) {
	const notPositive = "must be greater than 0"
	if lines := options.TailLines; lines != nil && *lines < 0 {
		c.Invalid(field.NewPath("tailLines"), *lines, "must be greater than or equal to 0")
	}
	if bytes := options.LimitBytes; bytes != nil && *bytes < 1 {
		c.Invalid(field.NewPath("limitBytes"), *bytes, notPositive)
	}
	switch seconds := options.SinceSeconds; {
	case seconds == nil:
	case options.SinceTime != nil:
		c.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified")
	case *seconds < 1:
		c.Invalid(field.NewPath("sinceSeconds"), *seconds, notPositive)
	}
	if options.Stream != nil {
		c.Forbidden(field.NewPath("stream"), "may not be specified")
	}
}
