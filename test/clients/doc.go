// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clients drives Kindred with programs that others made, as they are: Helm,
// Kustomize, the test suite of controller-runtime, the examples of client-go, and
// kubectl of three versions, which run test/scenarios. "make clients" builds each from
// its published module; their versions are in the module files below this folder.
package clients
