// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"
)

// NonEmpty requires a string, and reports whether there is one.
func (c *Checker) NonEmpty(path *field.Path, value string) bool {
	if value == "" {
		c.Required(path, "")
	}
	return value != ""
}

// MaxBytes requires a string of at most limit bytes.
func (c *Checker) MaxBytes(path *field.Path, value string, limit int) {
	if len(value) > limit {
		c.TooLong(path, limit)
	}
}

// MaxItems requires a list of at most limit items.
func (c *Checker) MaxItems(path *field.Path, size, limit int) {
	if size > limit {
		c.TooMany(path, size, limit)
	}
}

// NonNegative requires a number of at least 0.
func (c *Checker) NonNegative(path *field.Path, value int64) {
	c.Add(apivalidation.ValidateNonnegativeField(value, path)...)
}

// NonNegativePtr is NonNegative for a number that may be absent.
func NonNegativePtr[N int32 | int64](c Adder, path *field.Path, value *N) {
	if value != nil {
		c.Add(apivalidation.ValidateNonnegativeField(int64(*value), path)...)
	}
}

// DNSLabel requires a DNS label (RFC 1123).
func (c *Checker) DNSLabel(path *field.Path, value string) {
	c.Invalid(path, value, validation.IsDNS1123Label(value)...)
}

// DNSSubdomain requires a DNS subdomain (RFC 1123).
func (c *Checker) DNSSubdomain(path *field.Path, value string) {
	c.Invalid(path, value, validation.IsDNS1123Subdomain(value)...)
}

// RequiredDNSLabel is DNSLabel for a field whose absence is an error of its own.
func (c *Checker) RequiredDNSLabel(path *field.Path, value string) {
	if c.NonEmpty(path, value) {
		c.DNSLabel(path, value)
	}
}

// RequiredDNSSubdomain is DNSSubdomain for a field whose absence is an error of its own.
func (c *Checker) RequiredDNSSubdomain(path *field.Path, value string) {
	if c.NonEmpty(path, value) {
		c.DNSSubdomain(path, value)
	}
}

// OptionalDNSSubdomain is DNSSubdomain for a field that may be absent. An empty string is an error.
func (c *Checker) OptionalDNSSubdomain(path *field.Path, value *string) {
	if value != nil {
		c.DNSSubdomain(path, *value)
	}
}

// DNSSubdomainOrEmpty is DNSSubdomain for a field that may be empty.
func (c *Checker) DNSSubdomainOrEmpty(path *field.Path, value string) {
	if value != "" {
		c.DNSSubdomain(path, value)
	}
}

// QualifiedName requires a name with an optional domain in front: "example.com/name".
func (c *Checker) QualifiedName(path *field.Path, value string) {
	c.Invalid(path, value, validation.IsQualifiedName(value)...)
}

// DriverName requires the name of a storage or device driver (CSI, DRA): a DNS subdomain
// in any case, of at most 63 bytes.
func (c *Checker) DriverName(path *field.Path, name string) {
	const maxLength = 63
	if name == "" {
		c.Required(path, "")
		return
	}
	if len(name) > maxLength {
		c.Add(field.TooLong(path, "", maxLength).WithOrigin("maxLength"))
	}
	for _, problem := range validation.IsDNS1123Subdomain(strings.ToLower(name)) {
		c.Add(field.Invalid(path, name, problem).WithOrigin("format=k8s-long-name-caseless"))
	}
}

// Labels requires valid label keys and values.
func (c *Checker) Labels(path *field.Path, labels map[string]string) {
	c.Add(metav1validation.ValidateLabels(labels, path)...)
}

// LabelName requires a valid label key.
func (c *Checker) LabelName(path *field.Path, value string) {
	c.Add(metav1validation.ValidateLabelName(value, path)...)
}

// LabelValue requires a valid label value, which may be empty.
func (c *Checker) LabelValue(path *field.Path, value string) {
	c.Invalid(path, value, validation.IsValidLabelValue(value)...)
}

// LabelSelector requires a valid selector; a nil one is valid.
func (c *Checker) LabelSelector(path *field.Path, selector *metav1.LabelSelector) {
	c.Add(metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)...)
}

// PortNumber requires a number from 1 to 65535.
func (c *Checker) PortNumber(path *field.Path, port int32) {
	c.Invalid(path, port, validation.IsValidPortNum(int(port))...)
}

// PortNumberOrName requires a port, by number or by name.
func (c *Checker) PortNumberOrName(path *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.String {
		c.Invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal)...)
		return
	}
	c.Invalid(path, port.IntValue(), validation.IsValidPortNum(port.IntValue())...)
}

// IP requires an IP address in canonical form. Those in known, which the object had
// before, may stay in any form that older versions accepted, such as with leading zeros.
func (c *Checker) IP(path *field.Path, value string, known []string) {
	const strict = true
	c.Add(validation.IsValidIPForLegacyField(path, value, strict, known)...)
}

// CIDR is IP for a range of addresses.
func (c *Checker) CIDR(path *field.Path, value string, known []string) {
	const strict = true
	c.Add(validation.IsValidCIDRForLegacyField(path, value, strict, known)...)
}

// Positive requires a number above 0.
func (c *Checker) Positive(path *field.Path, value int64) {
	if value <= 0 {
		c.Add(field.Invalid(path, value, "must be greater than zero").WithOrigin("minimum"))
	}
}

// AllNonEmpty requires strings in several children of path: names and values in turn.
func (c *Checker) AllNonEmpty(path *field.Path, namesAndValues ...string) {
	for pair := range slices.Chunk(namesAndValues, 2) {
		c.NonEmpty(path.Child(pair[0]), pair[1])
	}
}

// RelativePath requires a file path that stays below the directory it is relative to.
func (c *Checker) RelativePath(fieldPath *field.Path, value string) {
	if path.IsAbs(value) {
		c.Invalid(fieldPath, value, "must be a relative path")
	}
	c.NoBacksteps(fieldPath, value)
}

// NoBacksteps requires a file path without the element "..".
func (c *Checker) NoBacksteps(path *field.Path, value string) {
	if HasBacksteps(value) {
		c.Invalid(path, value, "must not contain '..'")
	}
}

// HasBacksteps reports whether ".." is an element of a file path.
func HasBacksteps(path string) bool {
	return slices.Contains(strings.Split(path, "/"), "..")
}

// OnlyFields forbids each field of a struct that is set and not allowed.
func (c *Checker) OnlyFields(path *field.Path, object any, allowed sets.Set[string], detail string) {
	value := reflect.ValueOf(object)
	for i := range value.NumField() {
		name := value.Type().Field(i).Name
		if allowed.Has(name) || value.Field(i).IsZero() {
			continue
		}
		lower := []rune(name)
		lower[0] = unicode.ToLower(lower[0])
		c.Forbidden(path.Child(string(lower)), detail)
	}
}

// FinalizerDomain requires a domain in the name of a finalizer that is not Kubernetes' own.
func (c *Checker) FinalizerDomain(path *field.Path, name string) {
	switch {
	case strings.Contains(name, "/"):
	case name == string(corev1.FinalizerKubernetes), name == metav1.FinalizerOrphanDependents, name == metav1.FinalizerDeleteDependents:
	default:
		c.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}

// Expression reports why a CEL expression does not compile; err is nil if it does.
func (c *Checker) Expression(path *field.Path, expression string, err *cel.Error) {
	switch {
	case err == nil:
	case err.Type == cel.ErrorTypeRequired:
		c.Required(path, err.Detail)
	case err.Type == cel.ErrorTypeInvalid:
		c.Invalid(path, expression, err.Detail)
	default:
		c.Add(field.InternalError(path, err))
	}
}

// Adder is a Checker, or a type that embeds one.
type Adder interface {
	Add(errs ...*field.Error)
}

// OneOf requires a supported value.
func OneOf[T ~string](c Adder, path *field.Path, value T, supported ...T) {
	if !slices.Contains(supported, value) {
		c.Add(field.NotSupported(path, value, supported))
	}
}

// RequiredOneOf is OneOf for a field whose absence is an error of its own.
func RequiredOneOf[T ~string](c Adder, path *field.Path, value T, supported ...T) {
	if value == "" {
		c.Add(field.Required(path, ""))
		return
	}
	OneOf(c, path, value, supported...)
}

// OptionalOneOf is OneOf for a field that may be absent.
func OptionalOneOf[T ~string](c Adder, path *field.Path, value *T, supported ...T) {
	if value != nil {
		OneOf(c, path, *value, supported...)
	}
}

// Unique reports a value that is in seen, and adds it.
func Unique[T comparable](c Adder, path *field.Path, seen sets.Set[T], value T) {
	if seen.Has(value) {
		c.Add(field.Duplicate(path, value))
	}
	seen.Insert(value)
}
