// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package inprocess

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
)

// Creation is the object that a POST request is to create, in the request's context instead of its body.
type Creation struct {
	// Object must not be modified.
	Object runtime.Object
	// Created is set by an endpoint that reads Object. Nothing else refers to it.
	Created runtime.Object
}

type creationKey struct{}

// CreationFrom returns the creation that a context has, or nil.
func CreationFrom(ctx context.Context) *Creation {
	creation, _ := ctx.Value(creationKey{}).(*Creation)
	return creation
}

// Encode makes an ordinary request of one with a creation, for endpoints that read the body.
func (c *Creation) Encode(r *http.Request) error {
	kinds, _, err := scheme.Scheme.ObjectKinds(c.Object)
	if err != nil {
		return err
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, kinds[0].GroupVersion()), c.Object)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// Create creates an object by a POST request to a path, as a user with a user agent, and returns the object that the server
// has created. Objects are passed as they are, if the endpoint can take them, instead of encoded and decoded.
func (s *Server) Create(ctx context.Context, as user.Info, agent, path string, object runtime.Object) (runtime.Object, error) {
	handler := s.handler.Load()
	if handler == nil {
		return nil, errNotServing
	}
	creation := &Creation{Object: object}
	inner := context.WithValue(context.WithValue(context.Background(), identity{}, as), creationKey{}, creation)
	inner, cancel := context.WithCancel(inner)
	r := newResponse(inner, cancel)
	r.cancelAfter(ctx)
	r.ahead = math.MaxInt
	req, err := http.NewRequestWithContext(inner, http.MethodPost, host+path, http.NoBody)
	if err != nil {
		r.finish()
		return nil, err
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", runtime.ContentTypeProtobuf)
	req.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
	r.run(*handler, serverRequest(inner, req))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case r.err != nil:
		return nil, r.err
	case creation.Created != nil:
		return creation.Created, nil
	}
	return r.decoded()
}

// decoded returns the object in a response, or the error that it describes.
func (r *response) decoded() (runtime.Object, error) {
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), r.buffer.Bytes())
	if err != nil {
		return nil, fmt.Errorf("the server has answered %d: %w", r.code, err)
	}
	if status, ok := object.(*metav1.Status); ok && status.Status != metav1.StatusSuccess {
		return nil, apierrors.FromObject(status)
	}
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as client-go does
	return object, nil
}
