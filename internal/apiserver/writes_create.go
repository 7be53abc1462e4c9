// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// creator creates objects as handlers.CreateResource does.
type creator struct {
	*writeEndpoint
	fields createdFields
	create func(context.Context, string, runtime.Object, rest.ValidateObjectFunc, *metav1.CreateOptions) (runtime.Object, error)
	// keepsMeta is set if the metadata in a request is not that of a new object.
	keepsMeta bool
}

func newCreator(e *writeEndpoint, storage rest.Storage) (creator, error) {
	c := creator{writeEndpoint: e, fields: newCreatedFields(e.FieldManager)}
	switch s := storage.(type) {
	case rest.NamedCreater:
		c.create = s.Create
	case rest.Creater:
		c.create = func(ctx context.Context, _ string, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
			return s.Create(ctx, object, validate, options)
		}
	default:
		return creator{}, fmt.Errorf("%s/%s cannot be created", e.Resource.Resource, e.Subresource)
	}
	if s, ok := storage.(rest.SubresourceObjectMetaPreserver); ok {
		c.keepsMeta = s.PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate()
	}
	return c, nil
}

func (c creator) do(r *http.Request, object runtime.Object) (runtime.Object, error) {
	info, _ := request.RequestInfoFrom(r.Context())
	caller, _ := request.UserFrom(r.Context())
	name, err := c.prepare(object, info)
	if err != nil {
		return nil, err
	}
	ctx := request.WithNamespace(r.Context(), info.Namespace)
	audit.LogRequestObject(ctx, object, c.Kind.GroupVersion(), c.Resource, c.Subresource, c.Serializer)
	live, err := c.Creater.New(c.Kind)
	if err != nil {
		return nil, err
	}
	object = c.fields.set(live, object, managerOf(r.UserAgent()))
	options := &metav1.CreateOptions{}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("CreateOptions"))
	attributes := admission.NewAttributesRecord(object, nil, c.Kind, info.Namespace, name, c.Resource, c.Subresource, admission.Create, options, false, caller)
	if mutates, ok := c.admit.(admission.MutationInterface); ok && mutates.Handles(admission.Create) {
		if err := mutates.Admit(ctx, attributes, &c.RequestScope); err != nil {
			return nil, err
		}
	}
	created, err := c.create(ctx, name, object, rest.AdmissionToValidateObjectFunc(c.admit, attributes, &c.RequestScope), options)
	if status, ok := created.(*metav1.Status); ok && err == nil {
		status.Code = http.StatusCreated
	}
	return created, err
}

// prepare makes the metadata that of a new object in the request's namespace, and returns the object's name.
func (c creator) prepare(object runtime.Object, info *request.RequestInfo) (name string, err error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", err
	}
	if !c.keepsMeta {
		rest.WipeObjectMetaSystemFields(accessor)
	}
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(rest.ExpectedNamespaceForResource(info.Namespace, c.Resource), accessor); err != nil {
		return "", err
	}
	return cmp.Or(info.Name, accessor.GetName()), nil
}
