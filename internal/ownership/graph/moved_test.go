// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestCurrent(t *testing.T) {
	for kind, want := range map[string]string{
		"Deployment.extensions":            "Deployment.apps",
		"Ingress.extensions":               "Ingress.networking.k8s.io",
		"Deployment.example.com":           "Deployment.example.com",
		"PodSecurityPolicy.extensions":     "PodSecurityPolicy.extensions",
		"StatefulSet.apps":                 "StatefulSet.apps",
		"NetworkPolicy.extensions.example": "NetworkPolicy.extensions.example",
	} {
		if got := Current(schema.ParseGroupKind(kind)); got != schema.ParseGroupKind(want) {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}
