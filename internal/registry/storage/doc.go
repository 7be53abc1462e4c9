// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage holds the built-in kinds of storage.k8s.io: the classes that volumes are
// provisioned from, and descriptions of the CSI drivers that provision, attach and mount them.
// Defaults and declared validations are generated as in package core, whose defaults of a volume it
// shares.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/storage/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/storage/v1
package storage

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go --extra-peer-dirs github.com/kindred-project/kindred/internal/registry/core .
