// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource holds the built-in kinds of resource.k8s.io, dynamic resource allocation
// (KEP-4381): drivers publish devices in ResourceSlices, DeviceClasses select devices of a type,
// ResourceClaims request some, and their status holds the allocated ones. DeviceTaintRules keep pods
// away from devices.
//
// CEL expressions select devices. This package only compiles them, when an object with a new one is
// written. It creates the compiler on first use, because that costs more than a request.
//
// Fields of features that are alpha in v1.37 are dropped first (alpha.go), and therefore have no
// rules. Defaults and declared validations are generated as in package core, except the time that a
// taint was added, which needs a clock (defaults.go).
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/resource/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/resource/v1
package resource

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
