// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inprocess lets the server's own clients reach it by a function call:
// an http.RoundTripper that runs the server's handler chain, with
// authentication replaced by an identity that the process vouches for. There
// is no TCP and no TLS; authorization, admission, audit and priority see an
// ordinary request.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// host is what in-process requests name as their server. It is never resolved.
const host = "http://kindred.invalid"

// Server is the handler that in-process clients call; it is set once, when the
// chain of servers has been built, and the clients may exist before.
type Server struct {
	handler atomic.Pointer[http.Handler]
}

// Serve sets the handler.
func (s *Server) Serve(handler http.Handler) { s.handler.Store(&handler) }

// Config is a client configuration which acts as the given user. It has no
// limit of queries per second.
func (s *Server) Config(as user.Info) *rest.Config {
	return &rest.Config{
		Host:      host,
		Transport: &transport{server: s, user: as},
		QPS:       -1,
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
			ContentType:        "application/vnd.kubernetes.protobuf",
		},
		DisableCompression: true,
		// Warnings are for people who can change what they ask for; whoever runs in this
		// process and wants them sets a handler of its own.
		WarningHandlerWithContext: rest.NoWarnings{},
	}
}

type identity struct{}

// Authenticator accepts the identity of in-process requests. No request from
// outside can carry one, for it is not in the request but in its context.
func Authenticator() authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		info, ok := req.Context().Value(identity{}).(user.Info)
		if !ok {
			return nil, false, nil
		}
		return &authenticator.Response{User: info}, true, nil
	})
}

type transport struct {
	server *Server
	user   user.Info
}

var errNotServing = errors.New("the API server is not serving yet")

// RoundTrip runs the handler until it has written the header, and leaves it
// writing the body while the caller reads. What is answered whole is run in place: the
// stack that the filters and the registry need has grown, and stays with the caller.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	handler := t.server.handler.Load()
	if handler == nil {
		return nil, errNotServing
	}
	// Only the end of the caller's request reaches the server, none of its
	// values: a caller that is itself serving a request would hand on that
	// request's user, log and audit.
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), identity{}, t.user))
	r := newResponse(ctx, cancel)
	r.endWith(req.Context())
	inner := serverRequest(req, ctx)
	if isAnsweredWhole(req.Method) {
		r.ahead = math.MaxInt
		r.run(*handler, inner)
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return r.result(req), nil
	}
	go r.run(*handler, inner)
	select {
	case <-r.started:
		return r.result(req), nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// isAnsweredWhole tells whether the answer is never a stream. A GET may be for a watch or a
// log, and a POST for what a pod says.
func isAnsweredWhole(method string) bool {
	return method == http.MethodDelete || method == http.MethodPut || method == http.MethodPatch
}

// serverRequest makes of a client's request what a server would have parsed.
func serverRequest(req *http.Request, ctx context.Context) *http.Request {
	inner := req.WithContext(ctx)
	inner.Header = req.Header.Clone()
	inner.RequestURI = req.URL.RequestURI()
	inner.RemoteAddr = "127.0.0.1:0"
	inner.Host = req.URL.Host
	inner.Proto, inner.ProtoMajor, inner.ProtoMinor = "HTTP/2.0", 2, 0
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	return inner
}

func (r *response) run(handler http.Handler, req *http.Request) {
	defer r.finish()
	defer func() {
		if p := recover(); p != nil {
			r.abort(fmt.Errorf("the API server aborted the request: %v", p))
		}
	}()
	handler.ServeHTTP(r, req)
}
