// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// NewClient makes what Options.Metadata needs. It says in protobuf how an object is to be
// deleted: the library's client does so in JSON, and to read that was the dearest single part
// of a deletion.
func NewClient(config *rest.Config) (metadata.Interface, error) {
	config = metadata.ConfigFor(config)
	config.GroupVersion = &schema.GroupVersion{}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfigAndClient(config, transport)
	if err != nil {
		return nil, err
	}
	requests, err := rest.RESTClientForConfigAndClient(config, transport)
	if err != nil {
		return nil, err
	}
	return &client{objects, requests}, nil
}

type client struct {
	metadata.Interface
	requests rest.Interface
}

func (c *client) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	objects := c.Interface.Resource(gvr)
	return &resourceClient{ResourceInterface: objects, objects: objects, requests: c.requests, gvr: gvr}
}

// resourceClient is a resource in one namespace, or a cluster-scoped one.
type resourceClient struct {
	metadata.ResourceInterface
	objects   metadata.Getter
	requests  rest.Interface
	gvr       schema.GroupVersionResource
	namespace string
}

func (c *resourceClient) Namespace(namespace string) metadata.ResourceInterface {
	in := *c
	in.ResourceInterface, in.namespace = c.objects.Namespace(namespace), namespace
	return &in
}

func (c *resourceClient) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	body, err := runtime.Encode(deleteOptions, &options)
	if err != nil {
		return err
	}
	err = c.requests.Delete().AbsPath(c.path(name, subresources)...).
		SetHeader("Content-Type", runtime.ContentTypeProtobuf).Body(body).Do(ctx).Error()
	if apierrors.IsUnsupportedMediaType(err) {
		// An aggregated server may read nothing but JSON.
		return c.ResourceInterface.Delete(ctx, name, options, subresources...)
	}
	return err
}

func (c *resourceClient) path(name string, subresources []string) []string {
	path := []string{"api", c.gvr.Version}
	if c.gvr.Group != "" {
		path = []string{"apis", c.gvr.Group, c.gvr.Version}
	}
	if c.namespace != "" {
		path = append(path, "namespaces", c.namespace)
	}
	return append(append(path, c.gvr.Resource, name), subresources...)
}

var deleteOptions = deleteOptionsEncoder()

// deleteOptionsEncoder writes DeleteOptions as those of the version v1 without a group, which
// every server knows.
func deleteOptionsEncoder() runtime.Encoder {
	v1, scheme := schema.GroupVersion{Version: "v1"}, runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1)
	return serializer.NewCodecFactory(scheme).EncoderForVersion(protobuf.NewSerializer(scheme, scheme), v1)
}
