// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gang holds the declared validations of the types with which a Job requests gang
// scheduling of its pods. They belong to an alpha version of the group scheduling, which is not
// served. Jobs drop their field of these types, but the generated validations of Job refer to it.
//
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupSchedulingPolicy
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupSchedulingConstraints
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupDisruptionMode
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupResourceClaim
// +k8s:validation-gen-input=k8s.io/api/scheduling/v1alpha3
// +k8s:validation-gen-scheme-registry=nil
package gang
