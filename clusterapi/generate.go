// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterapi has nothing but the commands that generate code and definitions.
package clusterapi

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object:headerFile=hack/header.txt paths=./api/...
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 crd paths=./api/... output:crd:dir=config/crd
