// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates holds the built-in kinds of certificates.k8s.io: requests for certificates,
// which signers answer in the status, and bundles of the root certificates to trust. Defaults and
// declared validations work as in package core.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/certificates/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/certificates/v1
package certificates

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
