// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// NewClient returns a client for Options.Metadata. It sends DeleteOptions as protobuf and ignores
// the body of a successful response. k8s.io/client-go's metadata client sends JSON, and its
// preparations for retries, rate limits and responses took a tenth of the CPU time of a deletion.
func NewClient(config *rest.Config) (metadata.Interface, error) {
	config = metadata.ConfigFor(config)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &client{objects, server, httpClient.Transport}, nil
}

type client struct {
	metadata.Interface
	server    *url.URL
	transport http.RoundTripper
}

func (c *client) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	objects := c.Interface.Resource(gvr)
	return &resourceClient{ResourceInterface: objects, client: c, objects: objects, gvr: gvr}
}

// resourceClient is the client of a resource, in one namespace or cluster-scoped.
type resourceClient struct {
	metadata.ResourceInterface
	client    *client
	objects   metadata.Getter
	gvr       schema.GroupVersionResource
	namespace string
}

func (c *resourceClient) Namespace(namespace string) metadata.ResourceInterface {
	namespaced := *c
	namespaced.ResourceInterface, namespaced.namespace = c.objects.Namespace(namespace), namespace
	return &namespaced
}

// Delete overrides the Delete of ResourceInterface.
func (c *resourceClient) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	body, err := runtime.Encode(deleteOptions, &options)
	if err != nil {
		return err
	}
	request := (&http.Request{
		Method: http.MethodDelete,
		URL:    c.url(name, subresources),
		Header: http.Header{
			"Content-Type": {runtime.ContentTypeProtobuf},
			"Accept":       {runtime.ContentTypeJSON},
		},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}).WithContext(ctx)
	response, err := c.client.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode < http.StatusMultipleChoices:
		return nil
	case response.StatusCode == http.StatusUnsupportedMediaType, response.StatusCode == http.StatusBadRequest:
		// An aggregated API server may accept only JSON.
		return c.ResourceInterface.Delete(ctx, name, options, subresources...)
	}
	return c.errorFrom(name, response)
}

// errorFrom returns the error that a response contains.
func (c *resourceClient) errorFrom(name string, response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorSize))
	if err != nil {
		return err
	}
	status := metav1.Status{}
	if err := json.Unmarshal(body, &status); err != nil || status.Status != metav1.StatusFailure {
		return apierrors.NewGenericServerResponse(response.StatusCode, "delete", c.gvr.GroupResource(), name, string(body), 0, true)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// maxErrorSize limits how much of an error response is read.
const maxErrorSize = 1 << 20

// url returns the URL of an object, or of a subresource of it.
func (c *resourceClient) url(name string, subresources []string) *url.URL {
	path := []string{strings.TrimSuffix(c.client.server.Path, "/"), "api", c.gvr.Version}
	if c.gvr.Group != "" {
		path = append(path[:1], "apis", c.gvr.Group, c.gvr.Version)
	}
	if c.namespace != "" {
		path = append(path, "namespaces", c.namespace)
	}
	path = append(append(path, c.gvr.Resource, name), subresources...)
	to := *c.client.server
	to.Path = strings.Join(path, "/")
	return &to
}

var deleteOptions = deleteOptionsEncoder()

// deleteOptionsEncoder encodes DeleteOptions in the version v1 without a group, which every API
// server accepts.
func deleteOptionsEncoder() runtime.Encoder {
	v1, scheme := schema.GroupVersion{Version: "v1"}, runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1)
	return serializer.NewCodecFactory(scheme).EncoderForVersion(protobuf.NewSerializer(scheme, scheme), v1)
}
