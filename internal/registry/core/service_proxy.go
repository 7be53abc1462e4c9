// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	endpointproxy "k8s.io/apiserver/pkg/util/proxy"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// serviceProxy serves services/proxy: HTTP to one of the pods behind a Service.
type serviceProxy struct {
	services *generic.Store
	families []corev1.IPFamily
	slices   endpointproxy.EndpointSliceGetter
	pods     coreclient.PodsGetter
	nodes    NodeConnections
}

var _ rest.Connecter = &serviceProxy{}

func (*serviceProxy) New() runtime.Object { return &corev1.ServiceProxyOptions{} }
func (*serviceProxy) Destroy()            {}

func (*serviceProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.ServiceProxyOptions{}, true, "path"
}

func (*serviceProxy) ConnectMethods() []string { return proxyMethods }

func (x *serviceProxy) Connect(ctx context.Context, id string, obj runtime.Object, responder rest.Responder) (http.Handler, error) {
	options, ok := obj.(*corev1.ServiceProxyOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %#v", obj)
	}
	location, err := x.location(ctx, id)
	if err != nil {
		return nil, err
	}
	location.Path = utilnet.JoinPreservingTrailingSlash("", options.Path)
	return proxy.NewUpgradeAwareHandler(location, x.nodes.Proxy(), true, false, proxy.NewErrorResponder(responder)), nil
}

// location returns the URL of an endpoint of a Service. The id is "name", "name:port" or
// "scheme:name:port", where port is a name or a number.
func (x *serviceProxy) location(ctx context.Context, id string) (*url.URL, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", id))
	}
	port, err := x.portName(ctx, name, port)
	if err != nil {
		return nil, err
	}
	namespace := request.NamespaceValue(ctx)
	if namespace == "" {
		return nil, apierrors.NewBadRequest("missing required namespace")
	}
	found, err := x.slices.GetEndpointSlices(namespace, name)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	// This is also the error if there are no slices.
	host, err := endpointproxy.RandomEndpoint(name, found, port, x.families[0], func(endpoint *discoveryv1.Endpoint) bool {
		if err := x.isPod(ctx, namespace, endpoint); err != nil {
			klog.FromContext(ctx).Info("Not proxying to an endpoint", "service", klog.KRef(namespace, name), "reason", err)
			return false
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: scheme, Host: host}, nil
}

// portName converts a port number to the port's name, which slices use.
func (x *serviceProxy) portName(ctx context.Context, name, port string) (string, error) {
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return port, nil
	}
	obj, err := x.services.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, p := range obj.(*corev1.Service).Spec.Ports {
		if int64(p.Port) == number {
			return p.Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, name))
}

// isPod refuses endpoints that are not the address of a pod of this namespace: permission to write
// slices must not give access to all addresses that the API server can reach.
func (x *serviceProxy) isPod(ctx context.Context, namespace string, endpoint *discoveryv1.Endpoint) error {
	ref := endpoint.TargetRef
	if ref == nil {
		return fmt.Errorf("endpoint %v refers to no pod", endpoint.Addresses)
	}
	if ref.Namespace != namespace {
		return fmt.Errorf("endpoint %v is of namespace %s", endpoint.Addresses, ref.Namespace)
	}
	pod, err := x.pods.Pods(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// Only the first address of an endpoint is used.
	if !slices.Contains(pod.Status.PodIPs, corev1.PodIP{IP: endpoint.Addresses[0]}) {
		return fmt.Errorf("endpoint %v is not an address of pod %s", endpoint.Addresses, ref.Name)
	}
	return nil
}
