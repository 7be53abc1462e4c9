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

// Passed is the object of a request, in its context instead of its body.
type Passed struct {
	// Object must not be modified.
	Object runtime.Object
	// Result is set by an endpoint that reads Object. Nothing else refers to it.
	Result runtime.Object
}

type passedKey struct{}

// PassedFrom returns what a context passes, or nil.
func PassedFrom(ctx context.Context) *Passed {
	passed, _ := ctx.Value(passedKey{}).(*Passed)
	return passed
}

// Encode makes an ordinary request of one that passes an object, for endpoints that read the body.
func (p *Passed) Encode(r *http.Request) error {
	kinds, _, err := scheme.Scheme.ObjectKinds(p.Object)
	if err != nil {
		return err
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, kinds[0].GroupVersion()), p.Object)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// Write sends an object to a path, as a user with a user agent, and returns the object in the response. Objects are passed as
// they are, if the endpoint can take them, instead of encoded and decoded.
func (c Client) Write(ctx context.Context, as user.Info, agent, method, path string, object runtime.Object) (runtime.Object, error) {
	handler := c.Server.handler.Load()
	if handler == nil {
		return nil, errNotServing
	}
	passed := &Passed{Object: object}
	inner, cancel := context.WithCancel(context.WithValue(c.context(as), passedKey{}, passed))
	r := newResponse(inner, cancel)
	r.cancelAfter(ctx)
	r.ahead = math.MaxInt
	req, err := http.NewRequestWithContext(inner, method, host+path, http.NoBody)
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
	case passed.Result != nil:
		return passed.Result, nil
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
