// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds of infrastructure.cluster.x-k8s.io/v1alpha1 that Kindred's providers of Cluster API serve. They fulfil the contract
// v1beta2.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

var (
	// GroupVersion is the group and version of the kinds.
	GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}

	builder = &scheme.Builder{GroupVersion: GroupVersion}

	// AddToScheme adds the kinds to a scheme.
	AddToScheme = builder.AddToScheme
)
