// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 is the older version of the API group autoscaling: its defaults, its declared
// validations, and the conversion of its HorizontalPodAutoscaler to v2 and back. Fields that only
// v2 has are carried in upstream's annotations, so that a client of v1 that reads and writes an
// object loses none of them.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/autoscaling/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/autoscaling/v1
package v1
