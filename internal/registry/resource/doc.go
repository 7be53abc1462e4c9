// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource holds the built-in kinds of resource.k8s.io, by which devices
// are shared out (KEP-4381): drivers tell of devices in ResourceSlices, classes
// name devices of a kind, claims ask for some, and their status says which were
// given. DeviceTaintRules keep pods away from devices.
//
// Which devices are meant, CEL expressions say. Here they are only compiled, when
// a new one is written; making the compiler costs more than a request, so it is
// not made before.
//
// Fields of features that are alpha in v1.37 are dropped before anything looks at
// them (alpha.go), and therefore have no rules here. Defaults and declared
// validations are made as in package core, but for the time that a taint was
// added, which needs a clock (defaults.go).
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/resource/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/resource/v1
package resource

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
