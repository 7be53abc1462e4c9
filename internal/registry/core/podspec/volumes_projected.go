// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// projection checks a projected volume: several sources in one directory.
type projection struct {
	*check.Checker
	// path is the volume's, where conflicts between its sources are reported.
	path *field.Path
	// files holds the paths that sources have taken.
	files sets.Set[string]
}

func validateProjected(c *check.Checker, volume *v1.ProjectedVolumeSource, path *field.Path) {
	validateFileMode(c, volume.DefaultMode, path.Child("defaultMode"))
	p := projection{Checker: c, path: path, files: sets.Set[string]{}}
	for i := range volume.Sources {
		p.source(&volume.Sources[i], path.Child("sources").Index(i))
	}
}

func (p projection) source(source *v1.VolumeProjection, path *field.Path) {
	sources := 0
	if secret := source.Secret; secret != nil {
		sources++
		p.keys(secret.Name, secret.Items, path.Child("secret"))
	}
	if configMap := source.ConfigMap; configMap != nil {
		sources++
		p.keys(configMap.Name, configMap.Items, path.Child("configMap"))
	}
	if downward := source.DownwardAPI; downward != nil {
		sources++
		for i := range downward.Items {
			validateDownwardFile(p.Checker, &downward.Items[i], path.Child("downwardAPI"))
			p.takeNamed(downward.Items[i].Path, downward.Items[i].Path)
		}
	}
	if source.ServiceAccountToken != nil {
		sources++
		p.token(source.ServiceAccountToken, path.Child("serviceAccountToken"))
	}
	if source.ClusterTrustBundle != nil {
		sources++
		p.trustBundle(source.ClusterTrustBundle, path.Child("clusterTrustBundle"))
	}
	if source.PodCertificate != nil {
		sources++
		p.certificate(source.PodCertificate, path.Child("podCertificate"))
	}
	if sources > 1 {
		p.Forbidden(path, "may not specify more than 1 volume type per source")
	}
}

// take reports a path that another source has taken; the error shows value.
func (p projection) take(file, value string) {
	if p.files.Has(file) {
		p.Invalid(p.path, value, "conflicting duplicate paths")
	}
	p.files.Insert(file)
}

// takeNamed is take for a path whose absence is reported elsewhere.
func (p projection) takeNamed(file, value string) {
	if file != "" {
		p.take(file, value)
	}
}

func (p projection) keys(name string, items []v1.KeyToPath, path *field.Path) {
	p.NonEmpty(path.Child("name"), name)
	validateItems(p.Checker, items, path.Child("items"))
	for _, item := range items {
		p.takeNamed(item.Path, name)
	}
}

func (p projection) token(token *v1.ServiceAccountTokenProjection, path *field.Path) {
	at := path.Child("expirationSeconds")
	switch seconds := token.ExpirationSeconds; {
	case seconds == nil:
		p.Required(at, "")
	case *seconds < 10*60:
		p.Invalid(at, *seconds, "may not specify a duration less than 10 minutes")
	case *seconds > 1<<32:
		p.Invalid(at, *seconds, "may not specify a duration larger than 2^32 seconds")
	}
	if p.NonEmpty(p.path.Child("path"), token.Path) {
		validateOwnPath(p.Checker, p.path.Child("path"), token.Path)
	}
}

func (p projection) trustBundle(bundle *v1.ClusterTrustBundleProjection, path *field.Path) {
	switch {
	case bundle.Name != nil && bundle.SignerName != nil:
		p.Invalid(path, bundle, "only one of name and signerName may be used")
	case bundle.Name != nil:
		if *bundle.Name == "" {
			p.Required(path.Child("name"), "must be a valid object name")
		}
		validateTrustBundleName(p.Checker, path.Child("name"), *bundle.Name)
		if bundle.LabelSelector != nil {
			p.Invalid(path.Child("labelSelector"), bundle.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case bundle.SignerName != nil:
		if *bundle.SignerName == "" {
			p.Required(path.Child("signerName"), "must be a valid signer name")
		}
		p.SignerName(path.Child("signerName"), *bundle.SignerName)
		p.LabelSelector(path.Child("labelSelector"), bundle.LabelSelector)
	default:
		p.Required(path, "either name or signerName must be specified")
	}
	p.NonEmpty(path.Child("path"), bundle.Path)
	validateOwnPath(p.Checker, path.Child("path"), bundle.Path)
	p.take(bundle.Path, bundle.Path)
}

// Limits of the lifetime of a pod's certificate (KEP-4317).
const (
	minCertificateSeconds        = 60 * 60
	maxCertificateSeconds        = 91 * 24 * 60 * 60
	maxCertificateSecondsOfOwner = 24 * 60 * 60
)

func (p projection) certificate(certificate *v1.PodCertificateProjection, path *field.Path) {
	p.SignerName(path.Child("signerName"), certificate.SignerName)
	p.userAnnotations(certificate.UserAnnotations, path.Child("userAnnotations"))
	check.OneOf(p, path.Child("keyType"), certificate.KeyType,
		"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
	if seconds := certificate.MaxExpirationSeconds; seconds != nil {
		limit := int32(maxCertificateSeconds)
		if check.IsKubernetesSigner(certificate.SignerName) {
			limit = maxCertificateSecondsOfOwner
		}
		at := path.Child("maxExpirationSeconds")
		if *seconds < minCertificateSeconds {
			p.Invalid(at, *seconds, "if provided, maxExpirationSeconds must be >= 3600")
		}
		if *seconds > limit {
			p.Invalid(at, *seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", limit))
		}
	}
	files := 0
	for _, file := range []struct{ name, path string }{
		{"credentialBundlePath", certificate.CredentialBundlePath},
		{"keyPath", certificate.KeyPath},
		{"certificateChainPath", certificate.CertificateChainPath},
	} {
		if file.path == "" {
			continue
		}
		files++
		validateOwnPath(p.Checker, path.Child(file.name), file.path)
		p.take(file.path, file.path)
	}
	if files == 0 {
		p.Required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
}

// userAnnotations checks the annotations that a pod passes to its signer. Their keys need a domain,
// and may have any case.
func (p projection) userAnnotations(annotations map[string]string, path *field.Path) {
	for key := range annotations {
		p.Add(validation.IsDomainPrefixedKey(path, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		p.TooLong(path, apivalidation.TotalAnnotationSizeLimitB)
	}
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
