// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import "k8s.io/apimachinery/pkg/runtime"

// The generated validations add themselves to localSchemeBuilder.
var localSchemeBuilder = runtime.NewSchemeBuilder(RegisterDefaults)

// AddToScheme gives a scheme that knows the group's types their defaults and
// declared validations.
var AddToScheme = localSchemeBuilder.AddToScheme
