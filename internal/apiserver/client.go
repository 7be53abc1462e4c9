// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/component-base/version"

	"github.com/kindred-project/kindred/internal/apiserver/inprocess"
	"github.com/kindred-project/kindred/internal/storage"
)

// Client makes requests to the server from this process.
type Client struct{ requests inprocess.Client }

// Client returns a client of the server whose writes are under a fence, unless that is nil.
func (s *Server) Client(fence *storage.Fence) Client {
	within := storage.Own
	if fence != nil {
		within = func(ctx context.Context) context.Context { return fence.Under(storage.Own(ctx)) }
	}
	return Client{inprocess.Client{Server: &s.inprocess, Within: within}}
}

// Config returns an in-process client configuration that acts as the given user. Its field manager
// is the server's, unless UserAgent is changed.
func (s *Server) Config(as user.Info) *clientrest.Config { return s.Client(nil).Config(as) }

// Config returns a client configuration that acts as the given user. Its field manager is the server's, unless UserAgent is changed.
func (c Client) Config(as user.Info) *clientrest.Config {
	config := c.requests.Config(as)
	config.UserAgent = "kube-apiserver/" + version.Get().GitVersion
	return config
}

// Write sends an object of a built-in kind by a POST or PUT request to a path, as a user with a user agent, and returns the object
// in the response. What is written most is not encoded for that (writes).
func (c Client) Write(ctx context.Context, as user.Info, agent, method, path string, object runtime.Object) (runtime.Object, error) {
	return c.requests.Write(ctx, as, agent, method, path, object)
}
