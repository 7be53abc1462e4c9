// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config has the manifests of the providers, of which releases are made.
package config

import "embed"

// Files are the manifests. crd has the definitions, which controller-gen makes, and templates has those of workload clusters.
//
//go:embed *.yaml crd templates
var Files embed.FS
