// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowcontrol holds the built-in kinds of flowcontrol.apiserver.k8s.io
// (KEP-1040): a FlowSchema assigns requests to priority levels and flows; a
// PriorityLevelConfiguration limits the concurrency of a level and configures its queues.
//
// Mandatory objects always exist unchanged. Suggested objects are updated until a user changes
// them. Ensure does both; the objects are those of k8s.io/apiserver.
//
// Defaults and declared validations work as in package core.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/flowcontrol/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/flowcontrol/v1
package flowcontrol

//go:generate go run k8s.io/code-generator/cmd/defaulter-gen@v0.37.1 --go-header-file ../boilerplate.go.txt --output-file zz_generated.defaults.go .
