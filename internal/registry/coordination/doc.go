// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package coordination holds the built-in kinds of coordination.k8s.io.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/coordination/v1
package coordination
