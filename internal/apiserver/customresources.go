// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"mime"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// customResources is the server of k8s.io/apiextensions-apiserver, with one fix: a custom resource
// in protobuf, for which there is no decoder, made it panic and close the connection.
type customResources struct {
	genericapiserver.DelegationTarget
	codec runtime.NegotiatedSerializer
}

func (c customResources) UnprotectedHandler() http.Handler {
	next := c.DelegationTarget.UnprotectedHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !isCustomResource(info) || !isWrittenAsProtobuf(r) {
			next.ServeHTTP(w, r)
			return
		}
		err := negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
		responsewriters.ErrorNegotiated(err, c.codec, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
	})
}

func isCustomResource(info *request.RequestInfo) bool {
	return info.IsResourceRequest && strings.Contains(info.APIGroup, ".") && info.APIGroup != apiextensionsv1.GroupName
}

// isWrittenAsProtobuf reports whether the body is a custom resource in protobuf. The body of a
// DELETE is not: it has options.
func isWrittenAsProtobuf(r *http.Request) bool {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == runtime.ContentTypeProtobuf
}
