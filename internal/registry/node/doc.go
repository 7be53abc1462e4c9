// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node holds the built-in kinds of node.k8s.io. They have no defaults, and an overhead is
// stored as it is written. Declared validations work as in package core.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/node/v1
package node
