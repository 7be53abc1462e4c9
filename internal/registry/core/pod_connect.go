// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	"k8s.io/apiserver/pkg/registry/rest"
	translator "k8s.io/apiserver/pkg/util/proxy"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// NodeConnections connects the API server to node agents and to pods.
type NodeConnections interface {
	// Agent returns the base URL of a node's agent and a transport that
	// authenticates to it. An unverified transport accepts any certificate.
	Agent(ctx context.Context, nodeName string, unverified bool) (*url.URL, http.RoundTripper, error)
	// Proxy is the transport to pods, services and ports of nodes.
	Proxy() http.RoundTripper
	// MayStream returns an error unless the client may create the subresource: a websocket is
	// opened with a GET, for which authorization has checked another verb.
	MayStream(ctx context.Context) error
}

// podConnections returns the subresources that connect to the pod's node.
func podConnections(pods *generic.Store, nodes NodeConnections) map[string]rest.Storage {
	c := podConnector{pods, nodes}
	return map[string]rest.Storage{
		"log":         &podLog{c},
		"exec":        &podStream{c, "exec", func() runtime.Object { return &corev1.PodExecOptions{} }},
		"attach":      &podStream{c, "attach", func() runtime.Object { return &corev1.PodAttachOptions{} }},
		"portforward": &podStream{c, "portForward", func() runtime.Object { return &corev1.PodPortForwardOptions{} }},
		"proxy":       &podProxy{c},
	}
}

type podConnector struct {
	pods  *generic.Store
	nodes NodeConnections
}

func (podConnector) Destroy() {}

func (c podConnector) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	obj, err := c.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// container returns the named container, or the only one.
func container(p *corev1.Pod, name string) (string, error) {
	names := allContainerNames(p)
	if name != "" {
		for _, n := range names {
			if n == name {
				return name, nil
			}
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, p.Name))
	}
	switch len(p.Spec.Containers) {
	case 1:
		return p.Spec.Containers[0].Name, nil
	case 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", p.Name))
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", p.Name, names))
}

func allContainerNames(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

// podLog serves pods/log: it streams from the node.
type podLog struct{ podConnector }

// logStream is the response of a node.
type logStream struct{ *genericrest.LocationStreamer }

// InputStream implements rest.ResourceStreamer. A websocket's copier drops what it reads
// together with io.EOF, which is how a short body with a known length comes.
func (s *logStream) InputStream(ctx context.Context, apiVersion, accept string) (io.ReadCloser, bool, string, error) {
	stream, flush, contentType, err := s.LocationStreamer.InputStream(ctx, apiVersion, accept)
	if stream == nil {
		return nil, flush, contentType, err
	}
	return &endApart{ReadCloser: stream}, flush, contentType, err
}

// endApart is a reader that returns an error only when it returns nothing else.
type endApart struct {
	io.ReadCloser
	err error
}

func (r *endApart) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.ReadCloser.Read(p)
	if n > 0 {
		r.err, err = err, nil
	}
	return n, err
}

var _ rest.GetterWithOptions = &podLog{}

func (*podLog) New() runtime.Object { return &corev1.Pod{} }

func (*podLog) NewGetOptions() (runtime.Object, bool, string) {
	return &corev1.PodLogOptions{}, false, ""
}

// ProducesMIMETypes and ProducesObject document the endpoint in OpenAPI.
func (*podLog) ProducesMIMETypes(string) []string { return []string{"text/plain"} }
func (*podLog) ProducesObject(string) any         { return "" }

func (l *podLog) Get(ctx context.Context, name string, obj runtime.Object) (runtime.Object, error) {
	options, ok := obj.(*corev1.PodLogOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %#v", obj)
	}
	if errs := check.Run(func(c *check.Checker) { podspec.ValidatePodLogOptions(c, options) }); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), name, errs)
	}
	p, err := l.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	named, err := container(p, options.Container)
	if err != nil {
		return nil, err
	}
	streamer := &logStream{&genericrest.LocationStreamer{
		ContentType:     "text/plain",
		Flush:           options.Follow,
		ResponseChecker: genericrest.NewGenericHttpResponseChecker(corev1.Resource("pods/log"), name),
		RedirectChecker: genericrest.PreventRedirects,
	}}
	if p.Spec.NodeName == "" {
		return streamer, nil // nothing has been written yet
	}
	location, transport, err := l.nodes.Agent(ctx, p.Spec.NodeName, options.InsecureSkipTLSVerifyBackend)
	if err != nil {
		return nil, err
	}
	location.Path = "/containerLogs/" + p.Namespace + "/" + p.Name + "/" + named
	location.RawQuery = logQuery(options).Encode()
	streamer.Location, streamer.Transport = location, transport
	return streamer, nil
}

func logQuery(o *corev1.PodLogOptions) url.Values {
	query := url.Values{}
	flag := func(name string, set bool) {
		if set {
			query.Set(name, "true")
		}
	}
	number := func(name string, n *int64) {
		if n != nil {
			query.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	flag("follow", o.Follow)
	flag("previous", o.Previous)
	flag("timestamps", o.Timestamps)
	number("sinceSeconds", o.SinceSeconds)
	number("tailLines", o.TailLines)
	number("limitBytes", o.LimitBytes)
	if o.SinceTime != nil {
		query.Set("sinceTime", o.SinceTime.Format("2006-01-02T15:04:05Z07:00"))
	}
	return query
}

// podStream serves exec, attach and portforward: an upgraded connection to the
// node's agent. Clients speak SPDY, or websockets, which are translated here
// (KEP-4006).
type podStream struct {
	podConnector
	path       string
	newOptions func() runtime.Object
}

var _ rest.Connecter = &podStream{}

func (s *podStream) New() runtime.Object { return s.newOptions() }

func (s *podStream) NewConnectOptions() (runtime.Object, bool, string) {
	return s.newOptions(), false, ""
}

// ConnectMethods allow GET too: browsers open websockets with it.
func (*podStream) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

func (s *podStream) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := s.nodes.MayStream(ctx); err != nil {
		return nil, err
	}
	p, err := s.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	path, streams, query, err := streamTarget(p, options)
	if err != nil {
		return nil, err
	}
	if p.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", name))
	}
	location, transport, err := s.nodes.Agent(ctx, p.Spec.NodeName, false)
	if err != nil {
		return nil, err
	}
	location.Path = "/" + s.path + path
	location.RawQuery = query.Encode()
	direct := proxy.NewUpgradeAwareHandler(location, transport, false, true, proxy.NewErrorResponder(responder))
	if streams == nil {
		return translator.NewTranslatingHandler(direct, translator.NewTunnelingHandler(direct), wsstream.IsWebSocketRequestWithTunnelingProtocol), nil
	}
	translated := translator.NewStreamTranslatorHandler(location, transport, 0, *streams)
	return translator.NewTranslatingHandler(direct, translated, wsstream.IsWebSocketRequestWithStreamCloseProtocol), nil
}

// streamTarget returns the path of a pod's streams at the agent, the streams, which are nil for
// port-forwarding, and the query.
func streamTarget(p *corev1.Pod, options runtime.Object) (path string, streams *translator.Options, query url.Values, err error) {
	query = url.Values{}
	base := "/" + p.Namespace + "/" + p.Name
	var name string
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		name, streams = o.Container, &translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}
		query["command"] = o.Command
	case *corev1.PodAttachOptions:
		name, streams = o.Container, &translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}
	case *corev1.PodPortForwardOptions:
		if ports := joinPorts(o.Ports); ports != "" {
			query.Set("port", ports)
		}
		return base, nil, query, nil
	default:
		return "", nil, nil, fmt.Errorf("unknown object for streaming: %v", options)
	}
	for parameter, set := range map[string]bool{
		corev1.ExecStdinParam: streams.Stdin, corev1.ExecStdoutParam: streams.Stdout,
		corev1.ExecStderrParam: streams.Stderr, corev1.ExecTTYParam: streams.Tty,
	} {
		if set {
			query.Set(parameter, "1")
		}
	}
	named, err := container(p, name)
	return base + "/" + named, streams, query, err
}

func joinPorts(ports []int32) string {
	var out []string
	for _, p := range ports {
		out = append(out, strconv.Itoa(int(p)))
	}
	return strings.Join(out, ",")
}

// podProxy serves pods/proxy: HTTP to a port of the pod.
type podProxy struct{ podConnector }

var _ rest.Connecter = &podProxy{}

func (*podProxy) New() runtime.Object { return &corev1.PodProxyOptions{} }

func (*podProxy) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.PodProxyOptions{}, true, "path"
}

var proxyMethods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}

func (*podProxy) ConnectMethods() []string { return proxyMethods }

func (x *podProxy) Connect(ctx context.Context, id string, obj runtime.Object, responder rest.Responder) (http.Handler, error) {
	options, ok := obj.(*corev1.PodProxyOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %#v", obj)
	}
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", id))
	}
	p, err := x.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	if port == "" {
		port = firstPort(p)
	}
	ip := net.ParseIP(firstPodIP(p))
	if ip == nil || !ip.IsGlobalUnicast() {
		return nil, apierrors.NewBadRequest("address not allowed")
	}
	location := &url.URL{Scheme: scheme, Host: hostPort(ip.String(), port), Path: utilnet.JoinPreservingTrailingSlash("", options.Path)}
	return proxy.NewUpgradeAwareHandler(location, x.nodes.Proxy(), true, false, proxy.NewErrorResponder(responder)), nil
}

func firstPort(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if len(c.Ports) > 0 {
			return strconv.Itoa(int(c.Ports[0].ContainerPort))
		}
	}
	return ""
}

func hostPort(host, port string) string {
	if port != "" {
		return net.JoinHostPort(host, port)
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
