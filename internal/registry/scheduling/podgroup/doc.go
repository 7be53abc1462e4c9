// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroup holds the kinds of scheduling.k8s.io/v1beta1, with which pods are scheduled
// together (KEP-4671): a PodGroup is a group of pods with a scheduling policy, a Workload holds the
// templates of PodGroups. The version is off by default.
//
// +k8s:validation-gen=TypesWithSuffix=Workload
// +k8s:validation-gen=TypesWithSuffix=PodGroup
// +k8s:validation-gen-input=k8s.io/api/scheduling/v1beta1
package podgroup
