// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 is the older version of the API group autoscaling: its defaults, its
// declared validations, and how its HorizontalPodAutoscaler becomes one of v2 and
// back. What only v2 has is carried in annotations, by upstream's names and in
// upstream's form, so that nothing is lost when a client of v1 reads an object
// and writes it.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/autoscaling/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/autoscaling/v1
package v1
