// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gang holds the declared validations of the types by which a Job may ask
// for its pods to be scheduled together. They belong to a version of the group
// scheduling that is alpha, which is not served; a Job's field of these types is
// dropped, but the generated validations of Job name them all the same.
//
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupSchedulingPolicy
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupSchedulingConstraints
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupDisruptionMode
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupResourceClaim
// +k8s:validation-gen-input=k8s.io/api/scheduling/v1alpha3
// +k8s:validation-gen-scheme-registry=nil
package gang
