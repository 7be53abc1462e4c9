// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscaling holds the built-in kind of the API group autoscaling, the
// HorizontalPodAutoscaler. It is stored and validated as v2. Package v1 serves v1, and converts it.
// Scale, the group's other kind, is a subresource of scalable kinds (generic.Scale).
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/autoscaling/v2
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/autoscaling/v2
package autoscaling

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go . ./v1
