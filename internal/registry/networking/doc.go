// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package networking holds the built-in kinds of networking.k8s.io: Ingresses, NetworkPolicies, and
// the addresses of Services. Defaults and declared validations work as in package core.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/networking/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/networking/v1
package networking

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
