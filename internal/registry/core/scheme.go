// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import "k8s.io/apimachinery/pkg/runtime"

// The generated validations add themselves to localSchemeBuilder.
var localSchemeBuilder = runtime.NewSchemeBuilder(RegisterDefaults)

// AddToScheme adds the defaults and declared validations of the group's types to a scheme that has
// the types.
var AddToScheme = localSchemeBuilder.AddToScheme
