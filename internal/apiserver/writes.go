// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"strings"

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

// writes are the endpoints, right behind the filters, of what the cluster's parts write most. The object is in the request's
// context, so that it is not encoded and decoded on each way, which costs more than to store it (docs/decisions/0030). The
// filters, admission, managed fields, registry, audit and request metrics are the same as those of other requests.
type writes map[write]*writeEndpoint

// write is a verb for a resource or a subresource.
type write struct {
	verb string
	schema.GroupVersionResource
	subresource string
}

// directWrites are what the cluster's parts write most, by group: verbs and resources.
var directWrites = map[schema.GroupVersion][][2]string{
	{Version: "v1"}:                               {{"create", "pods"}, {"create", "pods/binding"}, {"update", "pods/status"}},
	{Group: "events.k8s.io", Version: "v1"}:       {{"create", "events"}},
	{Group: "coordination.k8s.io", Version: "v1"}: {{"update", "leases"}},
}

// writeEndpoint does one of the writes.
type writeEndpoint struct {
	handlers.RequestScope
	admit admission.Interface
	// write writes an object, which has its defaults and is the caller's own, and returns what is stored.
	write func(*http.Request, runtime.Object) (runtime.Object, error)
	// code is the status of a successful response.
	code int
	// handler is serve with request metrics.
	handler http.Handler
}

// add adds the endpoints of a group's resources, with the types of its fields.
func (w writes) add(main *genericapiserver.GenericAPIServer, admit admission.Interface, info *genericapiserver.APIGroupInfo, types managedfields.TypeConverter) error {
	for _, gv := range info.PrioritizedVersions {
		for _, direct := range directWrites[gv] {
			verb, path := direct[0], direct[1]
			storage, ok := info.VersionedResourcesStorageMap[gv.Version][path]
			if !ok {
				continue // not enabled
			}
			resource, subresource, _ := strings.Cut(path, "/")
			scope, err := scopeOf(main, info, types, gv.WithResource(resource), subresource, storage)
			if err != nil {
				return err
			}
			e := &writeEndpoint{RequestScope: scope, admit: fieldmanager.NewManagedFieldsValidatingAdmissionController(admission.WithAudit(admit))}
			if err := e.use(verb, storage); err != nil {
				return err
			}
			w[write{verb, e.Resource, subresource}] = e
		}
	}
	return nil
}

// scopeOf returns what handlers have of a resource.
func scopeOf(main *genericapiserver.GenericAPIServer, info *genericapiserver.APIGroupInfo, types managedfields.TypeConverter,
	resource schema.GroupVersionResource, subresource string, storage rest.Storage,
) (handlers.RequestScope, error) {
	kind, err := endpoints.GetResourceKind(resource.GroupVersion(), storage, info.Scheme)
	if err != nil {
		return handlers.RequestScope{}, err
	}
	var reset map[fieldpath.APIVersion]fieldpath.Filter
	switch strategy := storage.(type) {
	case rest.ResetFieldsStrategy:
		reset = fieldpath.NewExcludeFilterSetMap(strategy.GetResetFields())
	case rest.ResetFieldsFilterStrategy:
		reset = strategy.GetResetFieldsFilter()
	}
	hub, unsafe := schema.GroupVersion{Group: resource.Group, Version: runtime.APIVersionInternal}, runtime.UnsafeObjectConvertor(info.Scheme)
	fields, err := managedfields.NewDefaultFieldManager(types, unsafe, info.Scheme, info.Scheme, kind, hub, subresource, reset)
	return handlers.RequestScope{
		Creater: info.Scheme, Convertor: info.Scheme, UnsafeConvertor: unsafe, Defaulter: info.Scheme, Typer: info.Scheme, FieldManager: fields,
		EquivalentResourceMapper: main.EquivalentResourceRegistry, Serializer: info.NegotiatedSerializer,
		Resource: resource, Subresource: subresource, Kind: kind, HubGroupVersion: hub,
	}, err
}

// use makes this the endpoint of a verb for the objects of a storage.
func (e *writeEndpoint) use(verb string, storage rest.Storage) error {
	method := ""
	switch verb {
	case "create":
		creates, err := newCreator(e, storage)
		if err != nil {
			return err
		}
		e.write, e.code, method = creates.do, http.StatusCreated, http.MethodPost
	case "update":
		updates, ok := storage.(rest.Updater)
		if !ok {
			return fmt.Errorf("%s/%s cannot be updated", e.Resource.Resource, e.Subresource)
		}
		e.write, e.code, method = updater{e, updates}.do, http.StatusOK, http.MethodPut
	}
	e.handler = metrics.InstrumentHandlerFunc(method, e.Kind.Group, e.Kind.Version, e.Resource.Resource, e.Subresource, "resource", metrics.APIServerComponent, false, "", e.serve)
	return nil
}

// wrap passes the requests that have objects in their contexts to these endpoints, and all other requests to next. So it
// does, with the object in the body, if bodies are audited or the resource is served elsewhere.
func (w writes) wrap(next http.Handler, elsewhere func(schema.GroupVersion) bool) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		passed := inprocess.PassedFrom(r.Context())
		if passed == nil {
			next.ServeHTTP(rw, r)
			return
		}
		e := w.of(r)
		if e != nil && !elsewhere(e.Kind.GroupVersion()) {
			e.handler.ServeHTTP(rw, r)
			return
		}
		if err := passed.Encode(r); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(rw, r)
	})
}

func (w writes) of(r *http.Request) *writeEndpoint {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !audit.AuditContextFrom(r.Context()).GetEventLevel().Less(auditinternal.LevelRequest) {
		return nil
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	return w[write{info.Verb, gv.WithResource(info.Resource), info.Subresource}]
}

func (e *writeEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	passed := inprocess.PassedFrom(r.Context())
	written, err := e.written(r, passed.Object)
	if err != nil {
		responsewriters.ErrorNegotiated(err, e.Serializer, e.Kind.GroupVersion(), w, r)
		return
	}
	audit.LogResponseObject(r.Context(), written, e.Kind.GroupVersion(), e.Serializer)
	written.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as after decoding
	passed.Result = written
	w.WriteHeader(e.code)
}

// written does with an object what the handlers of k8s.io/apiserver do after decoding it.
func (e *writeEndpoint) written(r *http.Request, object runtime.Object) (runtime.Object, error) {
	object = object.DeepCopyObject()
	e.Defaulter.Default(object)
	object, err := e.UnsafeConvertor.ConvertToVersion(object, e.HubGroupVersion)
	if err != nil {
		return nil, err
	}
	written, err := e.write(r, object)
	if err != nil {
		return nil, inTime(r.Context(), err)
	}
	return e.UnsafeConvertor.ConvertToVersion(written, e.Kind.GroupVersion())
}

// managerOf returns the manager of the fields that a client with this user agent writes.
func managerOf(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	return name
}
