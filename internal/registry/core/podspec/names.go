// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// ValidateSignerName checks a name of the form domain/path, as certificate
// signers have it. The limits leave room for a namespace and a resource's name
// in the path.
func ValidateSignerName(c *check.Checker, path *field.Path, name string) {
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
	validateDotted(c, path, domain, validation.IsDNS1123Label)
	if !strings.Contains(domain, ".") {
		c.Invalid(path, domain, "should be a domain with at least two segments separated by dots")
	}
	validateDotted(c, path, rest, validation.IsDNS1123Subdomain)
	c.MaxBytes(path, name, maxName)
}

// validateDotted reports the first part between dots that breaks the rule.
func validateDotted(c *check.Checker, path *field.Path, value string, rule func(string) []string) {
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

// isKubernetesSigner says whether Kubernetes itself owns the signer's domain.
func isKubernetesSigner(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}

// validateTrustBundleName checks the name of a ClusterTrustBundle: one that belongs to a
// signer starts with the signer's name, with colons in the place of slashes.
func validateTrustBundleName(c *check.Checker, path *field.Path, name string) {
	const wrong = "not a valid clustertrustbundlename: "
	prefix, own := "", name
	if i := strings.LastIndex(name, ":"); i >= 0 {
		prefix, own = name[:i], name[i+1:]
	}
	if strings.Contains(prefix, "/") {
		signer := strings.ReplaceAll(prefix, ":", "/")
		c.Invalid(path, name, fmt.Sprintf("%sClusterTrustBundle for signerName %s must be named with prefix %s:",
			wrong, signer, strings.ReplaceAll(signer, "/", ":")))
		return
	}
	for _, problem := range apivalidation.NameIsDNSSubdomain(own, false) {
		c.Invalid(path, name, wrong+problem)
	}
}

// validateOwnPath is localPath for a file that we write, where names that start with
// two dots are those of the atomic writer.
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
