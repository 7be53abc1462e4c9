// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ClusterTrustBundle is a set of root certificates that pods can mount (KEP-3257). It may belong to
// a signer.
var ClusterTrustBundle = generic.Kind[*certificatesv1.ClusterTrustBundle]{
	Name: "ClusterTrustBundle", Plural: "clustertrustbundles", ClusterScoped: true,
	New:      func() *certificatesv1.ClusterTrustBundle { return &certificatesv1.ClusterTrustBundle{} },
	NewList:  func() runtime.Object { return &certificatesv1.ClusterTrustBundleList{} },
	Metadata: generic.Metadata{ValidName: anyName}, // validateBundleMeta checks it
	Validate: func(_ context.Context, c *check.Checker, b *certificatesv1.ClusterTrustBundle) {
		validateBundleMeta(c, b)
		validateAnchors(c, b.Spec.TrustBundle, bundlePath)
	},
	ValidateUpdate:         validateBundleUpdate,
	RequireResourceVersion: true,
	Fields: map[string]func(*certificatesv1.ClusterTrustBundle) string{
		"spec.signerName": func(b *certificatesv1.ClusterTrustBundle) string { return b.Spec.SignerName },
	},
	Table: generic.Table[*certificatesv1.ClusterTrustBundle]{ColumnsOnly: true}, // upstream has no column AGE
	Columns: []generic.Column[*certificatesv1.ClusterTrustBundle]{
		generic.NameColumn[*certificatesv1.ClusterTrustBundle](),
		{Name: "SignerName", Description: certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"], Cell: func(b *certificatesv1.ClusterTrustBundle) any { return generic.OrNone(b.Spec.SignerName) }},
	},
}

var bundlePath, bundleSignerPath = specPath.Child("trustBundle"), specPath.Child("signerName")

// validateBundleUpdate does not parse unchanged roots, so that a stricter parser does not block
// other updates.
func validateBundleUpdate(_ context.Context, c *check.Checker, b, old *certificatesv1.ClusterTrustBundle) {
	validateBundleMeta(c, b)
	if b.Spec.TrustBundle != old.Spec.TrustBundle {
		validateAnchors(c, b.Spec.TrustBundle, bundlePath)
	}
	c.Declared().Add(apivalidation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, bundleSignerPath).
		WithOrigin("immutable").MarkAlpha()...)
}

func validateBundleMeta(c *check.Checker, b *certificatesv1.ClusterTrustBundle) {
	metadata, signer := field.NewPath("metadata"), b.Spec.SignerName
	if b.GenerateName != "" {
		c.Invalid(metadata.Child("generateName"), b.GenerateName, bundleNameProblems(signer, b.GenerateName, true)...)
	}
	if b.Name != "" {
		c.Invalid(metadata.Child("name"), b.Name, bundleNameProblems(signer, b.Name, false)...)
	}
	if signer != "" {
		c.SignerName(bundleSignerPath, signer)
	}
}

// bundleNameProblems requires that the name of a signer's bundle begins with the signer's name,
// with colons instead of slashes, and that other names have no colons.
func bundleNameProblems(signer, name string, isPrefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{"ClusterTrustBundle without signer name must not have \":\" in its name"}
		}
		return apivalidation.NameIsDNSSubdomain(name, isPrefix)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	own, found := strings.CutPrefix(name, prefix)
	if !found {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)}
	}
	return apivalidation.NameIsDNSSubdomain(own, isPrefix)
}

const maxBundleBytes = 1 << 20

// validateAnchors requires roots in PEM without duplicates. It checks for duplicates only if all
// entries are roots.
func validateAnchors(c *check.Checker, bundle string, path *field.Path) {
	if len(bundle) > maxBundleBytes {
		c.TooLong(path, maxBundleBytes)
		return
	}
	report := func(detail string) { c.Invalid(path, "<value omitted>", detail) }
	valid := true
	indices := map[string][]int{}
	var order []string
	for i, rest := 0, []byte(bundle); ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if problem := anchorProblem(block); problem != "" {
			report(fmt.Sprintf("entry %d %s", i, problem))
			valid = false
			continue
		}
		anchor := string(block.Bytes)
		if indices[anchor] == nil {
			order = append(order, anchor)
		}
		indices[anchor] = append(indices[anchor], i)
	}
	switch {
	case !valid:
		return
	case len(order) == 0:
		report("at least one trust anchor must be provided")
	}
	for _, anchor := range order {
		if len(indices[anchor]) > 1 {
			report(fmt.Sprintf("duplicate trust anchor (indices %v)", indices[anchor]))
		}
	}
}

func anchorProblem(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return fmt.Sprintf("has bad block type: %v", block.Type)
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
