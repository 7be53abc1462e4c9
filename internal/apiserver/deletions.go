// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// deletions are the endpoints of the garbage collector's DELETE requests, right behind the filters.
// The generic endpoint matches every route of a group, negotiates the response and starts a
// goroutine whose stack must grow: a third of the cost of a deletion (docs/decisions/0013).
// Admission, registry, audit and request metrics are the same.
type deletions map[schema.GroupVersionResource]*deleteEndpoint

// add adds the resources of a group that this server serves.
func (d deletions) add(main *genericapiserver.GenericAPIServer, admit admission.Interface, info *genericapiserver.APIGroupInfo) error {
	for version, resources := range info.VersionedResourcesStorageMap {
		for resource, storage := range resources {
			deleter, ok := storage.(rest.GracefulDeleter)
			if !ok || strings.Contains(resource, "/") {
				continue
			}
			gv := schema.GroupVersion{Group: info.PrioritizedVersions[0].Group, Version: version}
			kind, err := endpoints.GetResourceKind(gv, storage, info.Scheme)
			if err != nil {
				return err
			}
			scoper, ok := storage.(rest.Scoper)
			e := &deleteEndpoint{
				deleter:    deleter,
				namespaced: ok && scoper.NamespaceScoped(),
				admit:      admission.WithAudit(admit),
				RequestScope: handlers.RequestScope{
					Creater: info.Scheme, Convertor: info.Scheme, Defaulter: info.Scheme, Typer: info.Scheme,
					EquivalentResourceMapper: main.EquivalentResourceRegistry, Serializer: info.NegotiatedSerializer,
					Resource: gv.WithResource(resource), Kind: kind,
				},
			}
			d[e.Resource] = e
			e.handler = metrics.InstrumentHandlerFunc(http.MethodDelete, gv.Group, gv.Version, resource, "", "resource", metrics.APIServerComponent, false, "", e.serve)
		}
	}
	return nil
}

// wrap passes the collector's deletions to these endpoints, and all other requests to next.
func (d deletions) wrap(next http.Handler, elsewhere func(schema.GroupVersion) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if endpoint, gv := d.of(r); endpoint != nil && !elsewhere(gv) {
			endpoint.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// of returns the endpoint of a request; nil if the generic endpoint must process it. If bodies are
// audited, the generic endpoint does, because audit hooks live there.
func (d deletions) of(r *http.Request) (http.Handler, schema.GroupVersion) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || info.Verb != "delete" || info.Subresource != "" || !isCollector(r.Context()) ||
		r.Header.Get("Content-Type") != runtime.ContentTypeProtobuf ||
		!audit.AuditContextFrom(r.Context()).GetEventLevel().Less(auditinternal.LevelRequest) {
		return nil, schema.GroupVersion{}
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	e, ok := d[gv.WithResource(info.Resource)]
	if !ok || e.namespaced != (info.Namespace != "" && info.Resource != "namespaces") {
		return nil, schema.GroupVersion{} // the generic endpoint answers 404
	}
	return e.handler, gv
}

// isCollector reports whether the request comes from the garbage collector.
func isCollector(ctx context.Context) bool {
	caller, ok := request.UserFrom(ctx)
	return ok && caller.GetName() == collectorUser
}

// deleteEndpoint deletes objects of one resource.
type deleteEndpoint struct {
	handlers.RequestScope
	deleter    rest.GracefulDeleter
	admit      admission.Interface
	namespaced bool
	// handler is serve with request metrics.
	handler http.Handler
}

func (e *deleteEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	result, err := e.delete(r)
	if err != nil {
		responsewriters.ErrorNegotiated(err, e.Serializer, e.Kind.GroupVersion(), w, r)
		return
	}
	audit.LogResponseObject(r.Context(), result, e.Kind.GroupVersion(), e.Serializer)
	// The caller needs only the status code.
	w.WriteHeader(http.StatusOK)
}

func (e *deleteEndpoint) delete(r *http.Request) (runtime.Object, error) {
	options, err := deleteOptions(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	info, _ := request.RequestInfoFrom(ctx)
	caller, _ := request.UserFrom(ctx)
	namespace := ""
	if e.namespaced { // the RequestInfo of a Namespace has its own name as namespace
		namespace = info.Namespace
	}
	attributes := admission.NewAttributesRecord(nil, nil, e.Kind, namespace, info.Name, e.Resource, "", admission.Delete,
		options, dryrun.IsDryRun(options.DryRun), caller)
	validate := rest.AdmissionToValidateObjectDeleteFunc(e.admit, attributes, &e.RequestScope)
	result, _, err := e.deleter.Delete(request.WithNamespace(ctx, namespace), info.Name, validate, options)
	return result, inTime(ctx, err)
}

// inTime returns the error of a request; that of k8s.io/apiserver (handlers/finisher) if its time is over, by which storeGate
// recognizes it.
func inTime(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %s", ctx.Err()), 0)
}

func deleteOptions(r *http.Request) (*metav1.DeleteOptions, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	options := &metav1.DeleteOptions{}
	if _, _, err := optionsOfDeletions.Decode(body, nil, options); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("DeleteOptions"))
	return options, nil
}

var optionsOfDeletions = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return protobuf.NewSerializer(scheme, scheme)
}()
