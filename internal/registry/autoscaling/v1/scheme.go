// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import "k8s.io/apimachinery/pkg/runtime"

// The generated validations add themselves to localSchemeBuilder.
var localSchemeBuilder = runtime.NewSchemeBuilder(RegisterDefaults, addConversions)

// AddToScheme gives a scheme that knows the group's types their defaults,
// declared validations and conversions.
var AddToScheme = localSchemeBuilder.AddToScheme
