// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates holds the built-in kinds of certificates.k8s.io: requests
// for certificates, which a signer answers in their status, and the bundles of
// roots by which what they signed is trusted. Defaults and declared validations
// are made as in package core.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/certificates/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/certificates/v1
package certificates

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
