// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy holds the built-in kind of the API group policy (v1), the
// PodDisruptionBudget. The group's other kind, Eviction, is not stored: it is
// posted to a pod, and served beside it in package core.
//
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/policy/v1
package policy
