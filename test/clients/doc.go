// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clients runs unmodified programs of other projects against Kindred: Helm, Kustomize,
// controller-runtime's test suite, client-go's examples, and kubectl in three versions, which run
// test/scenarios. "make clients" builds each from its published module; the module files in the
// directories below set the versions.
package clients
