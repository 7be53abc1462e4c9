// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checktest runs validation in tests and compares its errors.
package checktest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Errors returns the errors of a new object.
func Errors[T any](ctx context.Context, validate func(context.Context, *check.Checker, T), obj T) field.ErrorList {
	return check.Run(func(c *check.Checker) { validate(ctx, c, obj) })
}

// UpdateErrors returns the errors of a changed object.
func UpdateErrors[T any](ctx context.Context, validate func(ctx context.Context, c *check.Checker, obj, old T), obj, old T) field.ErrorList {
	return check.Run(func(c *check.Checker) { validate(ctx, c, obj, old) })
}

// Diff fails the test unless errs are the wanted errors in their order: path, type, value and
// detail.
func Diff(t *testing.T, want []string, errs field.ErrorList) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

// Details of errors in names and labels, which come from k8s.io/apimachinery.
const (
	NotDNSLabel      = `a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`
	NotDNSSubdomain  = `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`
	NotQualifiedName = `name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`
	NotLabelValue    = `a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`
)
