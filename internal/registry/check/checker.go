// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Checker collects the errors of an object. The zero value is ready to use.
type Checker struct {
	errs field.ErrorList
	// into is the checker that the errors go to, if it is another one.
	into *Checker
}

// Run returns the errors that rules report.
func Run(rules func(c *Checker)) field.ErrorList {
	c := &Checker{}
	rules(c)
	return c.Errors()
}

// Errors returns the reported errors in their order; nil if the object is valid.
func (c *Checker) Errors() field.ErrorList { return c.errs }

// Passes runs rules and reports whether they add no error to c.
func (c *Checker) Passes(rules func()) bool {
	root := c
	for root.into != nil {
		root = root.into
	}
	before := len(root.errs)
	rules()
	return len(root.errs) == before
}

// Add reports errors as they are.
func (c *Checker) Add(errs ...*field.Error) {
	if c.into == nil {
		c.errs = append(c.errs, errs...)
		return
	}
	c.into.Add(field.ErrorList(errs).MarkCoveredByDeclarative()...)
}

// Declared returns a checker for rules that k8s.io/api declares as well. It adds
// to c, and marks each error, so that the strategy reports it once.
func (c *Checker) Declared() *Checker { return &Checker{into: c} }

// Required reports a field that must be set.
func (c *Checker) Required(path *field.Path, detail string) {
	c.Add(field.Required(path, detail))
}

// Forbidden reports a field that must not be set, or not changed.
func (c *Checker) Forbidden(path *field.Path, detail string) {
	c.Add(field.Forbidden(path, detail))
}

// Invalid reports value once for each detail. It takes the problems that the
// functions of k8s.io/apimachinery's util/validation return: without problems, the
// value is valid.
func (c *Checker) Invalid(path *field.Path, value any, details ...string) {
	for _, detail := range details {
		c.Add(field.Invalid(path, value, detail))
	}
}

// Duplicate reports a value that another item of the list has already.
func (c *Checker) Duplicate(path *field.Path, value any) {
	c.Add(field.Duplicate(path, value))
}

// TooLong reports a string with more than limit bytes, without repeating it.
func (c *Checker) TooLong(path *field.Path, limit int) {
	c.Add(field.TooLong(path, "", limit))
}

// TooMany reports a list with more than limit items.
func (c *Checker) TooMany(path *field.Path, size, limit int) {
	c.Add(field.TooMany(path, size, limit))
}

// Immutable requires value to be equal to old.
func (c *Checker) Immutable(path *field.Path, value, old any) {
	c.Add(apivalidation.ValidateImmutableField(value, old, path).WithOrigin("immutable")...)
}
