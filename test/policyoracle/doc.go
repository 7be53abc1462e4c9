// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyoracle compares the compiled rules of NetworkPolicies with the decisions of the engine of
// sigs.k8s.io/kube-network-policies, the reference implementation of upstream's network group. It is a module of its own,
// because the product does not need that module.
package policyoracle
