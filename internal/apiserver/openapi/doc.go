// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapi has the OpenAPI definitions of every built-in type, generated from k8s.io/api and
// k8s.io/apimachinery. The servers publish them at /openapi/v2 and /openapi/v3, and server-side
// apply derives its type models from them.
package openapi

//go:generate ./generate.sh
//go:generate go test .. -count 1 -run ^TestHashesOfDocuments$ -update
