// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker collects what is wrong with a value.
type checker struct {
	errs field.ErrorList
}

// check runs one set of rules and returns what it found.
func check(rules func(*checker)) field.ErrorList {
	var c checker
	rules(&c)
	return c.errs
}

func (c *checker) add(errs ...*field.Error) {
	c.errs = append(c.errs, errs...)
}

func (c *checker) required(path *field.Path, detail string) {
	c.add(field.Required(path, detail))
}

func (c *checker) forbidden(path *field.Path, detail string) {
	c.add(field.Forbidden(path, detail))
}

// invalid reports a value once for each detail; without details it is valid.
func (c *checker) invalid(path *field.Path, value any, details ...string) {
	for _, detail := range details {
		c.add(field.Invalid(path, value, detail))
	}
}

// need requires the child of path to be set, and says whether it is.
func (c *checker) need(path *field.Path, child, value string) bool {
	if value == "" {
		c.required(path.Child(child), "")
	}
	return value != ""
}

// unique reports a value that was seen before, and remembers it.
func unique[T comparable](c *checker, path *field.Path, seen map[T]bool, value T) {
	if seen[value] {
		c.add(field.Duplicate(path, value))
	}
	seen[value] = true
}

// oneOf reports a value that is none of those supported.
func oneOf[T ~string](c *checker, path *field.Path, value T, supported ...T) {
	for _, s := range supported {
		if value == s {
			return
		}
	}
	c.add(field.NotSupported(path, value, supported))
}

// requiredOneOf is oneOf for a field that may not be empty either.
func requiredOneOf[T ~string](c *checker, path *field.Path, value T, supported ...T) {
	if value == "" {
		c.required(path, "")
		return
	}
	oneOf(c, path, value, supported...)
}

// optionalOneOf is oneOf for a field that may be absent.
func optionalOneOf[T ~string](c *checker, path *field.Path, value *T, supported ...T) {
	if value != nil {
		oneOf(c, path, *value, supported...)
	}
}

func (c *checker) nonNegative(path *field.Path, value int64) {
	c.add(apivalidation.ValidateNonnegativeField(value, path)...)
}

func (c *checker) positive(path *field.Path, value int64) {
	if value <= 0 {
		c.add(field.Invalid(path, value, "must be greater than zero").WithOrigin("minimum"))
	}
}

func (c *checker) dnsLabel(path *field.Path, value string) {
	c.invalid(path, value, validation.IsDNS1123Label(value)...)
}

func (c *checker) dnsSubdomain(path *field.Path, value string) {
	c.invalid(path, value, validation.IsDNS1123Subdomain(value)...)
}

func (c *checker) qualifiedName(path *field.Path, value string) {
	c.invalid(path, value, validation.IsQualifiedName(value)...)
}

func (c *checker) labelName(path *field.Path, value string) {
	c.add(metavalidation.ValidateLabelName(value, path)...)
}

func (c *checker) userID(path *field.Path, id *int64) {
	if id != nil {
		c.invalid(path, *id, validation.IsValidUserID(*id)...)
	}
}

func (c *checker) groupID(path *field.Path, id *int64) {
	if id != nil {
		c.invalid(path, *id, validation.IsValidGroupID(*id)...)
	}
}

// ip refuses what only older clients would write, such as leading zeros.
func (c *checker) ip(path *field.Path, value string, known []string) {
	const strict = true
	c.add(validation.IsValidIPForLegacyField(path, value, strict, known)...)
}
