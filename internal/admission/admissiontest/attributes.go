// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissiontest builds requests for tests of admission plugins.
package admissiontest

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
)

// Request describes a request. Unset fields are derived from the object.
type Request struct {
	Operation admission.Operation
	// Resource reads "pods", "pods/status" or "leases.coordination.k8s.io".
	Resource string
	// Object is nil for a delete; Old is nil for a create.
	Object, Old runtime.Object
	User        user.Info
	// Namespace and Name default to those of the object.
	Namespace, Name string
}

// Attributes returns the request as plugins see it. It panics if client-go's scheme
// does not have the type of the object.
func (r Request) Attributes() admission.Attributes {
	object := r.Object
	if object == nil {
		object = r.Old
	}
	var kind schema.GroupVersionKind
	namespace, name := r.Namespace, r.Name
	if object != nil {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			panic(err)
		}
		kind = kinds[0]
		if m, err := meta.Accessor(object); err == nil && namespace == "" && name == "" {
			namespace, name = m.GetNamespace(), m.GetName()
		}
	}
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	u := r.User
	if u == nil {
		u = &user.DefaultInfo{Name: "jane"}
	}
	return admission.NewAttributesRecord(r.Object, r.Old, kind, namespace, name,
		schema.ParseGroupResource(resource).WithVersion("v1"), subresource, r.Operation, nil, false, u)
}
