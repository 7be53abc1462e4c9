// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package transplant

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestIsDerived(t *testing.T) {
	const endpoints, slice = "endpoints.kubernetes.io/managed-by", "endpointslice.kubernetes.io/managed-by"
	for name, tt := range map[string]struct {
		apiVersion, kind string
		label, manager   string
		want             bool
	}{
		"Endpoints of the controller":     {"v1", "Endpoints", endpoints, "endpoint-controller", true},
		"Endpoints of another manager":    {"v1", "Endpoints", endpoints, "mesh.example.com", false},
		"Endpoints by hand":               {"v1", "Endpoints", "", "", false},
		"slice of the controller":         {"discovery.k8s.io/v1", "EndpointSlice", slice, "endpointslice-controller.k8s.io", true},
		"slice of the mirroring one":      {"discovery.k8s.io/v1", "EndpointSlice", slice, "endpointslicemirroring-controller.k8s.io", true},
		"slice of another manager":        {"discovery.k8s.io/v1", "EndpointSlice", slice, "mesh.example.com", false},
		"another group's kind":            {"example.com/v1", "EndpointSlice", slice, "endpointslice-controller.k8s.io", false},
		"another kind with the same mark": {"v1", "ConfigMap", endpoints, "endpoint-controller", false},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": tt.apiVersion, "kind": tt.kind}}
			object.SetLabels(map[string]string{tt.label: tt.manager})
			if got := IsDerived(object); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}
