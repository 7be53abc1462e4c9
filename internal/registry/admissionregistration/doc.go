// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionregistration holds the built-in kinds of
// admissionregistration.k8s.io: who else is asked before a request is stored.
// Webhooks ask a program outside, policies evaluate CEL here; a policy acts only
// where a binding puts it to use.
//
// Whatever is in CEL is compiled when it is written, with the compiler that the
// admission plugins use (k8s.io/apiserver), so that what cannot run is refused to
// its author. Expressions that are stored already stay accepted: they are compiled
// for the environment of stored expressions, which forgets nothing.
//
// Defaults and declared validations are made as in package core.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/admissionregistration/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/admissionregistration/v1
package admissionregistration

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
