// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the types of ownership.kindred.dev/v1alpha1. They answer questions
// about ownership: which objects own each other, what a deletion would remove, why an object
// was deleted, and how to restore it.
//
// All of them are reviews, like SubjectAccessReview: a client creates one with a spec and gets
// it back with a status. Nothing is stored. A review shows only objects that its creator may
// read.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.kindred.ownership.v1alpha1
// +groupName=ownership.kindred.dev
package v1alpha1

//go:generate ./generate.sh
