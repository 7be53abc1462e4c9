// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package transplant

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IsDerived reports whether an object's controller will recreate it entirely from other objects:
// Endpoints and EndpointSlices of upstream's controllers, which set the managed-by label. Copying
// or restoring such an object as well would duplicate it.
func IsDerived(object *unstructured.Unstructured) bool {
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Endpoints"}:
		return object.GetLabels()["endpoints.kubernetes.io/managed-by"] == "endpoint-controller"
	case schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:
		manager := object.GetLabels()["endpointslice.kubernetes.io/managed-by"]
		return manager == "endpointslice-controller.k8s.io" || manager == "endpointslicemirroring-controller.k8s.io"
	}
	return false
}
