// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyconformance runs the conformance suite of ClusterNetworkPolicies, that of sigs.k8s.io/network-policy-api. It is
// a module of its own, because the suite needs packages that the product does not.
package policyconformance
