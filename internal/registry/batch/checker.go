// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import "github.com/kindred-project/kindred/internal/registry/check"

// checker walks a job; each of its methods is the rules of one field.
type checker struct {
	check.Checker
}

// unlike reports whether two values differ; either may be absent.
func unlike[V comparable](a, b *V) bool {
	if a == nil || b == nil {
		return a != b
	}
	return *a != *b
}
