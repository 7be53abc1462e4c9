// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"

	"github.com/kindred-project/kindred/internal/registry/check"
)

var path = field.NewPath("spec")

// TestRules runs each rule on a value that it accepts and on one that it rejects.
func TestRules(t *testing.T) {
	one, minusOne := int32(1), int32(-1)
	seen := sets.New("a")
	for _, test := range []struct {
		name      string
		good, bad func(c *check.Checker)
		want      string
	}{
		{"NonEmpty", func(c *check.Checker) { c.NonEmpty(path, "a") }, func(c *check.Checker) { c.NonEmpty(path, "") },
			"spec: Required value"},
		{"MaxBytes", func(c *check.Checker) { c.MaxBytes(path, "ab", 2) }, func(c *check.Checker) { c.MaxBytes(path, "abc", 2) },
			"spec: Too long: may not be more than 2 bytes"},
		{"MaxItems", func(c *check.Checker) { c.MaxItems(path, 2, 2) }, func(c *check.Checker) { c.MaxItems(path, 3, 2) },
			"spec: Too many: 3: must have at most 2 items"},
		{"NonNegative", func(c *check.Checker) { c.NonNegative(path, 0) }, func(c *check.Checker) { c.NonNegative(path, -1) },
			"spec: Invalid value: -1: must be greater than or equal to 0"},
		{"NonNegativePtr", func(c *check.Checker) {
			check.NonNegativePtr[int32](c, path, nil)
			check.NonNegativePtr(c, path, &one)
		}, func(c *check.Checker) { check.NonNegativePtr(c, path, &minusOne) },
			"spec: Invalid value: -1: must be greater than or equal to 0"},
		{"Immutable", func(c *check.Checker) { c.Immutable(path, "a", "a") }, func(c *check.Checker) { c.Immutable(path, "a", "b") },
			`spec: Invalid value: "a": field is immutable`},
		{"DNSLabel", func(c *check.Checker) { c.DNSLabel(path, "a") }, func(c *check.Checker) { c.DNSLabel(path, "A") },
			`spec: Invalid value: "A": a lowercase RFC 1123 label`},
		{"DNSSubdomain", func(c *check.Checker) { c.DNSSubdomain(path, "a.b") }, func(c *check.Checker) { c.DNSSubdomain(path, "A") },
			`spec: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		{"RequiredDNSLabel", func(c *check.Checker) { c.RequiredDNSLabel(path, "a") }, func(c *check.Checker) { c.RequiredDNSLabel(path, "") },
			"spec: Required value"},
		{"RequiredDNSSubdomain", func(c *check.Checker) { c.RequiredDNSSubdomain(path, "a.b") }, func(c *check.Checker) { c.RequiredDNSSubdomain(path, "A") },
			`spec: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		{"OptionalDNSSubdomain", func(c *check.Checker) {
			c.OptionalDNSSubdomain(path, nil)
			c.OptionalDNSSubdomain(path, new("a.b"))
		}, func(c *check.Checker) { c.OptionalDNSSubdomain(path, new("")) },
			`spec: Invalid value: "": a lowercase RFC 1123 subdomain`},
		{"DNSSubdomainOrEmpty", func(c *check.Checker) {
			c.DNSSubdomainOrEmpty(path, "")
			c.DNSSubdomainOrEmpty(path, "a.b")
		}, func(c *check.Checker) { c.DNSSubdomainOrEmpty(path, "A") },
			`spec: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		{"DriverName", func(c *check.Checker) { c.DriverName(path, "CSI.example.com") }, func(c *check.Checker) { c.DriverName(path, "a_b") },
			`spec: Invalid value: "a_b": a lowercase RFC 1123 subdomain`},
		{"PortNumber", func(c *check.Checker) { c.PortNumber(path, 80) }, func(c *check.Checker) { c.PortNumber(path, 65536) },
			"spec: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"PortNumberOrName", func(c *check.Checker) { c.PortNumberOrName(path, intstr.FromString("http")) },
			func(c *check.Checker) { c.PortNumberOrName(path, intstr.FromString("80")) },
			`spec: Invalid value: "80": must contain at least one letter (a-z)`},
		{"IP", func(c *check.Checker) { c.IP(path, "01.2.3.4", []string{"01.2.3.4"}) }, func(c *check.Checker) { c.IP(path, "01.2.3.4", nil) },
			`spec: Invalid value: "01.2.3.4": must not have leading 0s`},
		{"Positive", func(c *check.Checker) { c.Positive(path, 1) }, func(c *check.Checker) { c.Positive(path, 0) },
			"spec: Invalid value: 0: must be greater than zero"},
		{"AllNonEmpty", func(c *check.Checker) { c.AllNonEmpty(path, "a", "x", "b", "y") },
			func(c *check.Checker) { c.AllNonEmpty(path, "a", "x", "b", "") }, "spec.b: Required value"},
		{"RelativePath", func(c *check.Checker) { c.RelativePath(path, "a/..b") }, func(c *check.Checker) { c.RelativePath(path, "/a") },
			`spec: Invalid value: "/a": must be a relative path`},
		{"NoBacksteps", func(c *check.Checker) { c.NoBacksteps(path, "/a/..b") }, func(c *check.Checker) { c.NoBacksteps(path, "a/../b") },
			`spec: Invalid value: "a/../b": must not contain '..'`},
		{"OnlyFields", func(c *check.Checker) {
			c.OnlyFields(path, metav1.ObjectMeta{Name: "a"}, sets.New("Name"), "cannot be set")
		}, func(c *check.Checker) {
			c.OnlyFields(path, metav1.ObjectMeta{Name: "a", GenerateName: "b"}, sets.New("Name"), "cannot be set")
		}, "spec.generateName: Forbidden: cannot be set"},
		{"FinalizerDomain", func(c *check.Checker) {
			c.FinalizerDomain(path, "kubernetes")
			c.FinalizerDomain(path, "orphan")
			c.FinalizerDomain(path, "foregroundDeletion")
			c.FinalizerDomain(path, "a/b")
		}, func(c *check.Checker) { c.FinalizerDomain(path, "a") },
			`spec: Invalid value: "a": name is neither a standard finalizer name nor is it fully qualified`},
		{"SignerName", func(c *check.Checker) { c.SignerName(path, "example.com/a") }, func(c *check.Checker) { c.SignerName(path, "example/a") },
			`spec: Invalid value: "example": should be a domain with at least two segments separated by dots`},
		{"Expression", func(c *check.Checker) { c.Expression(path, "a", nil) },
			func(c *check.Checker) { c.Expression(path, "a", &cel.Error{Type: cel.ErrorTypeInvalid, Detail: "bad"}) },
			`spec: Invalid value: "a": bad`},
		{"OneOf", func(c *check.Checker) { check.OneOf(c, path, "a", "a", "b") }, func(c *check.Checker) { check.OneOf(c, path, "", "a", "b") },
			`spec: Unsupported value: "": supported values: "a", "b"`},
		{"RequiredOneOf", func(c *check.Checker) { check.RequiredOneOf(c, path, "a", "a", "b") },
			func(c *check.Checker) { check.RequiredOneOf(c, path, "", "a", "b") }, "spec: Required value"},
		{"OptionalOneOf", func(c *check.Checker) { check.OptionalOneOf(c, path, nil, "a", "b") },
			func(c *check.Checker) { check.OptionalOneOf(c, path, new("c"), "a", "b") }, `spec: Unsupported value: "c": supported values: "a", "b"`},
		{"Unique", func(c *check.Checker) { check.Unique(c, path, sets.New[string](), "a") },
			func(c *check.Checker) { check.Unique(c, path, seen, "a") }, `spec: Duplicate value: "a"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			good, bad := &check.Checker{}, &check.Checker{}
			if test.good(good); len(good.Errors()) > 0 {
				t.Errorf("rejects a good value: %v", good.Errors())
			}
			test.bad(bad)
			if errs := bad.Errors(); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), test.want) {
				t.Errorf("got %v, want one error %q", errs, test.want)
			}
		})
	}
}

// TestInvalid reports a value once for each problem.
func TestInvalid(t *testing.T) {
	c := &check.Checker{}
	c.Invalid(path, "a")
	c.Invalid(path, "a", "too short", "too simple")
	if errs := c.Errors(); len(errs) != 2 || errs[1].Detail != "too simple" {
		t.Errorf("got %v, want two errors", errs)
	}
}

// TestPasses checks that only errors of the given rules count, also those of declared ones.
func TestPasses(t *testing.T) {
	c := &check.Checker{}
	c.Required(path, "")
	if !c.Passes(func() {}) || !c.Declared().Passes(func() {}) {
		t.Error("an earlier error counts")
	}
	if c.Passes(func() { c.Declared().Required(path, "") }) || c.Declared().Passes(func() { c.Required(path, "") }) {
		t.Error("an error does not count")
	}
	if len(c.Errors()) != 3 {
		t.Errorf("got %v, want three errors", c.Errors())
	}
}

// TestDeclared keeps the order of errors, and marks only those of declared rules.
func TestDeclared(t *testing.T) {
	c := &check.Checker{}
	c.Required(path.Child("a"), "")
	c.Declared().Required(path.Child("b"), "")
	c.Declared().Declared().Immutable(path.Child("c"), 1, 2)
	c.Required(path.Child("d"), "")
	var got []string
	for _, err := range c.Errors() {
		mark := ""
		if err.CoveredByDeclarative {
			mark = "*"
		}
		got = append(got, err.Field+mark)
	}
	if got, want := strings.Join(got, " "), "spec.a spec.b* spec.c* spec.d"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
