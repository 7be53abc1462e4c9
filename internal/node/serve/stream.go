// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// exec serves /exec/{namespace}/{pod}[/{uid}]/{container}.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	streams, err := remotecommand.NewOptions(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	_, id, ok := s.runningContainer(w, r)
	if !ok {
		return
	}
	response, err := s.options.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: r.URL.Query()["command"],
		Tty: streams.TTY, Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr,
	})
	forward(w, r, streams, response.GetUrl(), err)
}

// attach serves /attach/{namespace}/{pod}[/{uid}]/{container}.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	streams, err := remotecommand.NewOptions(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	pod, id, ok := s.runningContainer(w, r)
	if !ok {
		return
	}
	// Whether a process has a TTY was decided at its start.
	tty, _ := terminal(pod, r.PathValue("container"))
	response, err := s.options.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: id,
		Tty:         tty, Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr && !tty,
	})
	forward(w, r, streams, response.GetUrl(), err)
}

// portForward serves /portForward/{namespace}/{pod}[/{uid}].
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	options := &portforward.V4Options{}
	if !tunnel {
		var err error
		if options, err = portforward.NewV4Options(r); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	sandbox, ok := s.options.Lookup.Sandbox(r.Context(), pod.UID)
	if !ok {
		fail(w, http.StatusInternalServerError, fmt.Sprintf("failed to find sandboxID for pod %s_%s(%s)", pod.Name, pod.Namespace, pod.UID))
		return
	}
	response, err := s.options.Runtime.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: options.Ports})
	location, ok := locationOf(w, response.GetUrl(), err)
	if !ok {
		return
	}
	handler := proxyTo(location)
	if tunnel {
		handler = translator.NewTunnelingHandler(handler)
	}
	handler.ServeHTTP(w, r)
}

// pod returns the pod in the path, or responds that it does not exist.
func (s *Server) pod(w http.ResponseWriter, r *http.Request) (*v1.Pod, bool) {
	uid := types.UID(r.PathValue("uid"))
	pod, ok := s.options.Lookup.Pod(r.PathValue("namespace"), r.PathValue("pod"), uid)
	if !ok || (uid != "" && pod.UID != uid) {
		fail(w, http.StatusNotFound, "pod does not exist")
		return nil, false
	}
	return pod, true
}

// runningContainer returns the running container in the path, or responds that it does not exist.
func (s *Server) runningContainer(w http.ResponseWriter, r *http.Request) (*v1.Pod, string, bool) {
	pod, ok := s.pod(w, r)
	if !ok {
		return nil, "", false
	}
	name := r.PathValue("container")
	instance, ok := s.options.Lookup.Container(r.Context(), pod.UID, name, false)
	if !ok || !instance.Running {
		fail(w, http.StatusInternalServerError, fmt.Sprintf("container not found (%q)", name))
		return nil, "", false
	}
	return pod, instance.ID, true
}

// forward proxies the connection to the URL where the runtime serves the stream.
func forward(w http.ResponseWriter, r *http.Request, streams *remotecommand.Options, location string, err error) {
	target, ok := locationOf(w, location, err)
	if !ok {
		return
	}
	handler := proxyTo(target)
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		handler = translator.NewStreamTranslatorHandler(target, nil, 0, translator.Options{
			Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Tty: streams.TTY,
		})
	}
	handler.ServeHTTP(w, r)
}

func locationOf(w http.ResponseWriter, location string, err error) (*url.URL, bool) {
	if err != nil {
		_ = streaming.WriteError(err, w)
		return nil, false
	}
	target, err := url.Parse(location)
	if err != nil {
		fail(w, http.StatusInternalServerError, "the runtime's streaming URL is malformed: "+err.Error())
		return nil, false
	}
	return target, true
}

func proxyTo(target *url.URL) http.Handler {
	return proxy.NewUpgradeAwareHandler(target, nil, false, true, responder{})
}

// responder responds if the runtime cannot be reached or the client does not upgrade the connection.
type responder struct{}

func (responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	klog.FromContext(r.Context()).Error(err, "Cannot proxy the stream to the runtime", "path", r.URL.Path)
	code := http.StatusInternalServerError
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	fail(w, code, err.Error())
}
