// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import "k8s.io/apimachinery/pkg/runtime"

// The generated validations add themselves to localSchemeBuilder.
var localSchemeBuilder = runtime.NewSchemeBuilder()

// AddToScheme gives a scheme that knows the group's types their declared
// validations.
var AddToScheme = localSchemeBuilder.AddToScheme
