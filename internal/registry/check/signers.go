// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SignerName requires the name of a certificate signer: "example.com/path". The limits leave room
// for a namespace and an object's name in the path.
func (c *Checker) SignerName(path *field.Path, name string) {
	if name == "" {
		c.Required(path, "")
		return
	}
	domain, rest, found := strings.Cut(name, "/")
	if !found || strings.Contains(rest, "/") {
		c.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	const (
		maxDomain = validation.DNS1123SubdomainMaxLength
		maxPath   = validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 1
		maxName   = maxDomain + maxPath + 1
	)
	c.MaxBytes(path, domain, maxDomain)
	c.dotted(path, domain, validation.IsDNS1123Label)
	if !strings.Contains(domain, ".") {
		c.Invalid(path, domain, "should be a domain with at least two segments separated by dots")
	}
	c.dotted(path, rest, validation.IsDNS1123Subdomain)
	c.MaxBytes(path, name, maxName)
}

// dotted reports the first part between dots that breaks the rule.
func (c *Checker) dotted(path *field.Path, value string, rule func(string) []string) {
	for part := range strings.SplitSeq(value, ".") {
		problems := rule(part)
		for _, problem := range problems {
			c.Invalid(path, value, fmt.Sprintf("validating label %q: %s", part, problem))
		}
		if len(problems) > 0 {
			return
		}
	}
}

// IsKubernetesSigner reports whether the domain of a signer belongs to Kubernetes.
func IsKubernetesSigner(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}
