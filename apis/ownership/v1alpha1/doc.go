// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the types of ownership.kindred.dev/v1alpha1: what is owned by whom,
// what a deletion would take along, and why.
//
// All of them are reviews: a client creates one with a spec, and gets it back with a status;
// nothing is stored. Whoever may create a review sees in it those objects alone that they
// may read themselves.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.kindred.ownership.v1alpha1
// +groupName=ownership.kindred.dev
package v1alpha1

//go:generate ./generate.sh
