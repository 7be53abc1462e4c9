// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apps holds the built-in kinds of the API group apps: a kind is one value in one file, and
// Group lists them. Defaults and declared validations work as in package core, whose defaults of pod
// templates it uses. The versions before apps/v1, of which extensions/v1beta1 is one, are forms of
// the same objects (older.go).
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/apps/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/apps/v1
package apps

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go --extra-peer-dirs github.com/kindred-project/kindred/internal/registry/core .
