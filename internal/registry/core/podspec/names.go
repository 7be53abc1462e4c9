// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// validateOwnPath checks the path of a file that the kubelet writes into a volume. Its atomic
// writer reserves names that begin with two dots.
func validateOwnPath(c *check.Checker, fieldPath *field.Path, value string) {
	c.RelativePath(fieldPath, value)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") {
		c.Invalid(fieldPath, value, "must not start with '..'")
	}
}

// validateFinalizers requires a domain in the name of each finalizer that is not Kubernetes' own.
func validateFinalizers(c *check.Checker, finalizers []string, path *field.Path) {
	for i, name := range finalizers {
		c.FinalizerDomain(path.Index(i), name)
	}
}
