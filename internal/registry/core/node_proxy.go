// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// node is Node with its proxy subresource.
func node(nodes NodeConnections) generic.Kind[*corev1.Node] {
	kind := Node
	kind.Endpoints.Subresources = func(*generic.Store) map[string]rest.Storage {
		return map[string]rest.Storage{"proxy": &nodeProxy{nodes}}
	}
	return kind
}

// nodeProxy serves nodes/proxy: HTTP to the node's agent, or to another port of
// the node.
type nodeProxy struct{ nodes NodeConnections }

var _ rest.Connecter = &nodeProxy{}

func (*nodeProxy) New() runtime.Object { return &corev1.NodeProxyOptions{} }
func (*nodeProxy) Destroy()            {}

func (*nodeProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.NodeProxyOptions{}, true, "path"
}

func (*nodeProxy) ConnectMethods() []string { return proxyMethods }

func (x *nodeProxy) Connect(ctx context.Context, id string, obj runtime.Object, responder rest.Responder) (http.Handler, error) {
	options, ok := obj.(*corev1.NodeProxyOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %#v", obj)
	}
	location, transport, err := x.location(ctx, id)
	if err != nil {
		return nil, err
	}
	location.Path = utilnet.JoinPreservingTrailingSlash("", options.Path)
	return proxy.NewUpgradeAwareHandler(location, transport, true, false, proxy.NewErrorResponder(responder)), nil
}

// location resolves id: "name" is the agent, "name:port" and "scheme:name:port" are any port of the
// node. The agent authenticates itself, so it may have any address; other ports must not lead
// to the API server's loopback.
func (x *nodeProxy) location(ctx context.Context, id string) (*url.URL, http.RoundTripper, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", id))
	}
	agent, transport, err := x.nodes.Agent(ctx, name, false)
	if err != nil {
		return nil, nil, err
	}
	if port == "" || port == agent.Port() {
		return agent, transport, nil
	}
	if ip := net.ParseIP(agent.Hostname()); ip == nil || !ip.IsGlobalUnicast() {
		return nil, nil, apierrors.NewBadRequest("address not allowed")
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(agent.Hostname(), port)}, x.nodes.Proxy(), nil
}
