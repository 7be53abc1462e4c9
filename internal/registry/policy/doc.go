// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy holds the built-in kind of the API group policy (v1), the PodDisruptionBudget.
// Eviction, the group's other kind, is not stored: it is a subresource of pods, in package core.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/policy/v1
package policy
