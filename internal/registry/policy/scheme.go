// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import "k8s.io/apimachinery/pkg/runtime"

// The generated validations add themselves to localSchemeBuilder.
var localSchemeBuilder = runtime.NewSchemeBuilder()

// AddToScheme adds the declared validations of the group's types to a scheme that has the types.
// The group has no defaults.
func AddToScheme(scheme *runtime.Scheme) error { return localSchemeBuilder.AddToScheme(scheme) }
