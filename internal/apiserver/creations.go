// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kindred-project/kindred/internal/apiserver/inprocess"
)

// creations are the endpoints, right behind the filters, of what the cluster's parts create most: pods, their bindings, and
// events. The object is in the request's context, so that it is not encoded and decoded on each way, which costs more
// than to store it (docs/decisions/0030). The filters, admission, managed fields, registry, audit and request metrics are the
// same as those of other requests.
type creations map[createdResource]*createEndpoint

// createdResource is a resource or a subresource.
type createdResource struct {
	schema.GroupVersionResource
	subresource string
}

// directlyCreated are the resources of creations, by group.
var directlyCreated = map[schema.GroupVersion][]string{
	{Version: "v1"}:                         {"pods", "pods/binding"},
	{Group: "events.k8s.io", Version: "v1"}: {"events"},
}

// createEndpoint creates objects of one resource.
type createEndpoint struct {
	handlers.RequestScope
	create func(context.Context, string, runtime.Object, rest.ValidateObjectFunc, *metav1.CreateOptions) (runtime.Object, error)
	admit  admission.Interface
	// keepsMeta is set if the metadata in a request is not that of a new object.
	keepsMeta bool
	// handler is serve with request metrics.
	handler http.Handler
}

// add adds the endpoints of a group's resources, with the types of its fields.
func (c creations) add(main *genericapiserver.GenericAPIServer, admit admission.Interface, info *genericapiserver.APIGroupInfo, types managedfields.TypeConverter) error {
	for _, gv := range info.PrioritizedVersions {
		for _, path := range directlyCreated[gv] {
			storage, ok := info.VersionedResourcesStorageMap[gv.Version][path]
			if !ok {
				continue // not enabled
			}
			if err := c.addResource(main, admit, info, types, gv, path, storage); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c creations) addResource(main *genericapiserver.GenericAPIServer, admit admission.Interface, info *genericapiserver.APIGroupInfo,
	types managedfields.TypeConverter, gv schema.GroupVersion, path string, storage rest.Storage,
) error {
	resource, subresource, _ := strings.Cut(path, "/")
	kind, err := endpoints.GetResourceKind(gv, storage, info.Scheme)
	if err != nil {
		return err
	}
	var reset map[fieldpath.APIVersion]fieldpath.Filter
	if strategy, ok := storage.(rest.ResetFieldsStrategy); ok {
		reset = fieldpath.NewExcludeFilterSetMap(strategy.GetResetFields())
	}
	hub, unsafe := schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, runtime.UnsafeObjectConvertor(info.Scheme)
	fields, err := managedfields.NewDefaultFieldManager(types, unsafe, info.Scheme, info.Scheme, kind, hub, subresource, reset)
	if err != nil {
		return err
	}
	e := &createEndpoint{
		admit: fieldmanager.NewManagedFieldsValidatingAdmissionController(admission.WithAudit(admit)),
		RequestScope: handlers.RequestScope{
			Creater: info.Scheme, Convertor: info.Scheme, UnsafeConvertor: unsafe, Defaulter: info.Scheme, Typer: info.Scheme, FieldManager: fields,
			EquivalentResourceMapper: main.EquivalentResourceRegistry, Serializer: info.NegotiatedSerializer,
			Resource: gv.WithResource(resource), Subresource: subresource, Kind: kind, HubGroupVersion: hub,
		},
	}
	switch s := storage.(type) {
	case rest.NamedCreater:
		e.create = s.Create
	case rest.Creater:
		e.create = func(ctx context.Context, _ string, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
			return s.Create(ctx, object, validate, options)
		}
	default:
		return fmt.Errorf("%s cannot be created", path)
	}
	if s, ok := storage.(rest.SubresourceObjectMetaPreserver); ok {
		e.keepsMeta = s.PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate()
	}
	c[createdResource{e.Resource, subresource}] = e
	e.handler = metrics.InstrumentHandlerFunc(http.MethodPost, gv.Group, gv.Version, resource, subresource, "resource", metrics.APIServerComponent, false, "", e.serve)
	return nil
}

// wrap passes the creations that requests have in their contexts to these endpoints, and all other requests to next. So it
// does, with the object in the body, if bodies are audited or the resource is served elsewhere.
func (c creations) wrap(next http.Handler, elsewhere func(schema.GroupVersion) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		creation := inprocess.CreationFrom(r.Context())
		if creation == nil {
			next.ServeHTTP(w, r)
			return
		}
		e := c.of(r)
		if e != nil && !elsewhere(e.Kind.GroupVersion()) {
			e.handler.ServeHTTP(w, r)
			return
		}
		if err := creation.Encode(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c creations) of(r *http.Request) *createEndpoint {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || info.Verb != "create" || !audit.AuditContextFrom(r.Context()).GetEventLevel().Less(auditinternal.LevelRequest) {
		return nil
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	return c[createdResource{gv.WithResource(info.Resource), info.Subresource}]
}

func (e *createEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	creation := inprocess.CreationFrom(r.Context())
	created, err := e.created(r, creation.Object)
	if err != nil {
		responsewriters.ErrorNegotiated(err, e.Serializer, e.Kind.GroupVersion(), w, r)
		return
	}
	audit.LogResponseObject(r.Context(), created, e.Kind.GroupVersion(), e.Serializer)
	created.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as after decoding
	creation.Created = created
	w.WriteHeader(http.StatusCreated)
}

// created creates an object as handlers.CreateResource does, after that has decoded it.
func (e *createEndpoint) created(r *http.Request, object runtime.Object) (runtime.Object, error) {
	ctx := r.Context()
	info, _ := request.RequestInfoFrom(ctx)
	caller, _ := request.UserFrom(ctx)
	object = object.DeepCopyObject()
	e.Defaulter.Default(object)
	object, err := e.UnsafeConvertor.ConvertToVersion(object, e.HubGroupVersion)
	if err != nil {
		return nil, err
	}
	name, err := e.prepare(object, info)
	if err != nil {
		return nil, err
	}
	ctx = request.WithNamespace(ctx, info.Namespace)
	audit.LogRequestObject(ctx, object, e.Kind.GroupVersion(), e.Resource, e.Subresource, e.Serializer)
	live, err := e.Creater.New(e.Kind)
	if err != nil {
		return nil, err
	}
	object = e.FieldManager.UpdateNoErrors(live, object, managerOf(r.UserAgent()))
	options := &metav1.CreateOptions{}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("CreateOptions"))
	attributes := admission.NewAttributesRecord(object, nil, e.Kind, info.Namespace, name, e.Resource, e.Subresource, admission.Create, options, false, caller)
	if mutates, ok := e.admit.(admission.MutationInterface); ok && mutates.Handles(admission.Create) {
		if err := mutates.Admit(ctx, attributes, &e.RequestScope); err != nil {
			return nil, err
		}
	}
	created, err := e.create(ctx, name, object, rest.AdmissionToValidateObjectFunc(e.admit, attributes, &e.RequestScope), options)
	if err != nil && ctx.Err() != nil {
		// As for deletions, storeGate recognizes the message.
		err = apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %s", ctx.Err()), 0)
	}
	if err != nil {
		return nil, err
	}
	if status, ok := created.(*metav1.Status); ok {
		status.Code = http.StatusCreated
		return status, nil
	}
	return e.UnsafeConvertor.ConvertToVersion(created, e.Kind.GroupVersion())
}

// prepare makes the metadata that of a new object in the request's namespace, and returns the object's name.
func (e *createEndpoint) prepare(object runtime.Object, info *request.RequestInfo) (name string, err error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", err
	}
	if !e.keepsMeta {
		rest.WipeObjectMetaSystemFields(accessor)
	}
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(rest.ExpectedNamespaceForResource(info.Namespace, e.Resource), accessor); err != nil {
		return "", err
	}
	return cmp.Or(info.Name, accessor.GetName()), nil
}

// managerOf returns the manager of the fields that a client with this user agent writes.
func managerOf(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	return name
}
