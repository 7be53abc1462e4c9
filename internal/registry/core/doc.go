// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package core holds the built-in kinds of the legacy API group "" (v1): a kind is one value in one
// file, and Group lists them.
//
// The defaults*.go files hold the defaults, as one SetDefaults function for each type. Code for the
// +default values and +k8s: validations that k8s.io/api declares is generated: the generators
// walk every type of the group and call those functions, and the validations, wherever the
// type occurs.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/core/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/core/v1
package core

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
//go:generate ../generate-validations.sh ./core ./apps ./autoscaling ./autoscaling/v1 ./batch ./batch/gang ./policy ./rbac ./coordination ./scheduling ./scheduling/podgroup ./discovery ./networking ./storage ./node ./certificates ./admissionregistration ./flowcontrol ./storagemigration ./resource
