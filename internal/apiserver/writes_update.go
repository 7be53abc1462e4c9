// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// updater updates objects as handlers.UpdateResource does, but creates none, which updates of Leases could.
type updater struct {
	*writeEndpoint
	rest.Updater
}

func (u updater) do(r *http.Request, object runtime.Object) (runtime.Object, error) {
	info, _ := request.RequestInfoFrom(r.Context())
	caller, _ := request.UserFrom(r.Context())
	ctx := request.WithNamespace(r.Context(), info.Namespace)
	audit.LogRequestObject(ctx, object, u.Kind.GroupVersion(), u.Resource, u.Subresource, u.Serializer)
	if err := u.check(object, info); err != nil {
		return nil, err
	}
	options := &metav1.UpdateOptions{}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("UpdateOptions"))
	attributes := u.attributesFor(info, caller, options)
	manager := managerOf(r.UserAgent())
	transformers := []rest.TransformFunc{func(_ context.Context, object, live runtime.Object) (runtime.Object, error) {
		if renew(live, object, manager) {
			return object, nil
		}
		return u.FieldManager.UpdateNoErrors(live, object, manager), nil
	}}
	if mutates, ok := u.admit.(admission.MutationInterface); ok && mutates.Handles(admission.Update) {
		transformers = append(transformers, func(ctx context.Context, object, live runtime.Object) (runtime.Object, error) {
			return object, mutates.Admit(ctx, attributes(object, live), &u.RequestScope)
		})
	}
	updated, _, err := u.Update(ctx, info.Name, rest.DefaultUpdatedObjectInfo(object, transformers...), u.notFound(info.Name),
		rest.AdmissionToValidateObjectUpdateFunc(u.admit, attributes(nil, nil), &u.RequestScope), false, options)
	return updated, err
}

// attributesFor returns the function that makes the attributes for admission.
func (u updater) attributesFor(info *request.RequestInfo, caller user.Info, options *metav1.UpdateOptions) func(object, live runtime.Object) admission.Attributes {
	return func(object, live runtime.Object) admission.Attributes {
		return admission.NewAttributesRecord(object, live, u.Kind, info.Namespace, info.Name, u.Resource, u.Subresource, admission.Update, options, false, caller)
	}
}

// check refuses an object whose name or namespace is not the request's.
func (u updater) check(object runtime.Object, info *request.RequestInfo) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(rest.ExpectedNamespaceForResource(info.Namespace, u.Resource), accessor); err != nil {
		return err
	}
	if accessor.GetName() != info.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", accessor.GetName(), info.Name))
	}
	return nil
}

// notFound returns the function that refuses that an update creates an object of this name.
func (u updater) notFound(name string) rest.ValidateObjectFunc {
	return func(context.Context, runtime.Object) error {
		return apierrors.NewNotFound(u.Resource.GroupResource(), name)
	}
}
