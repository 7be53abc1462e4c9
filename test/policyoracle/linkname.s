// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// With an assembly file in the package, the compiler accepts the functions without a body in engine_test.go, which the
// linker takes from kube-network-policies.
