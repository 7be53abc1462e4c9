// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling holds the built-in kinds of scheduling.k8s.io.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/scheduling/v1
package scheduling
