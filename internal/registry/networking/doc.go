// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package networking holds the built-in kinds of networking.k8s.io. Declared
// validations are made as in package core.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/networking/v1
package networking
