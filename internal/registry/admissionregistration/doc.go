// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionregistration holds the built-in kinds of admissionregistration.k8s.io, which
// extend admission: webhooks call external programs, policies evaluate CEL in the API server. A
// policy takes effect only through a binding.
//
// CEL expressions are compiled when they are written, with the compiler of the admission plugins
// (k8s.io/apiserver), so that the author of an invalid one gets the error. Expressions that are
// already stored are compiled in the environment for stored expressions, which still has everything
// that earlier versions supported.
//
// Defaults and declared validations work as in package core.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/admissionregistration/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/admissionregistration/v1
package admissionregistration

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
