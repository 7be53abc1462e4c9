// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inprocess lets clients in the process call the server as a function: an http.RoundTripper
// that runs the server's handler chain, with a trusted identity instead of credentials. There is no
// TCP and no TLS. Authorization, admission, audit and priority are the same as for other requests.
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

// host is the server in the URLs of in-process requests. It is never resolved.
const host = "http://kindred.invalid"

// Server is the handler that in-process clients call. It is set once, when the chain of servers is
// complete; clients may be created before.
type Server struct {
	handler atomic.Pointer[http.Handler]
}

// Serve sets the handler.
func (s *Server) Serve(handler http.Handler) { s.handler.Store(&handler) }

// Config returns a client configuration that acts as the given user. It has no QPS limit.
func (s *Server) Config(as user.Info) *rest.Config { return Client{Server: s}.Config(as) }

// Client makes requests to a server.
type Client struct {
	Server *Server
	// Within adds values to the contexts of all requests; nil adds none.
	Within func(context.Context) context.Context
}

// context returns the context of a request by a user, without its cancellation.
func (c Client) context(as user.Info) context.Context {
	ctx := context.WithValue(context.Background(), identity{}, as)
	if c.Within != nil {
		ctx = c.Within(ctx)
	}
	return ctx
}

// Config returns a client configuration that acts as the given user. It has no QPS limit.
func (c Client) Config(as user.Info) *rest.Config {
	return &rest.Config{
		Host:      host,
		Transport: &transport{client: c, user: as},
		QPS:       -1,
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
			ContentType:        "application/vnd.kubernetes.protobuf",
		},
		DisableCompression: true,
		// Warnings are for users who can change their requests. A client in this process that wants
		// them sets its own handler.
		WarningHandlerWithContext: rest.NoWarnings{},
	}
}

// Transport returns a transport whose requests a handler processes, without an identity.
func Transport(handler http.Handler) http.RoundTripper {
	s := &Server{}
	s.Serve(handler)
	return &transport{client: Client{Server: s}}
}

type identity struct{}

// Authenticator returns an authenticator that accepts the identity of in-process requests. A
// request from outside cannot have one, because it is not in the request but in its context.
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
	client Client
	user   user.Info
}

var errNotServing = errors.New("the API server is not serving yet")

// RoundTrip runs the handler in a goroutine and returns when it has written the header; the caller
// reads the body while the handler writes it. If the response is buffered, the handler runs in the
// caller's goroutine instead: a new goroutine would have to grow its stack for each request.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	handler := t.client.Server.handler.Load()
	if handler == nil {
		return nil, errNotServing
	}
	// Only the cancellation of the caller's context is passed on, not its values: a caller that is
	// itself processing a request would pass on that request's user, logger and audit event.
	ctx, cancel := context.WithCancel(t.client.context(t.user))
	r := newResponse(ctx, cancel)
	r.cancelAfter(req.Context())
	inner := serverRequest(ctx, req)
	if isBuffered(req.Method) {
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

// isBuffered reports whether the whole response is buffered before the caller reads it, because the
// API does not stream responses to the method; a GET may be a watch or a log. The request is then
// served on the caller's goroutine, whose stack has already grown: creating pods takes a tenth less
// processor time. A POST streams if it is an exec or goes to a proxy, but not from this process.
func isBuffered(method string) bool {
	return method != http.MethodGet && method != http.MethodHead
}

// serverRequest converts a client's request to the one that a server would have parsed.
func serverRequest(ctx context.Context, req *http.Request) *http.Request {
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

// run runs the handler, and turns a panic into an error of the response.
func (r *response) run(handler http.Handler, req *http.Request) {
	defer r.finish()
	defer func() {
		if p := recover(); p != nil {
			r.abort(fmt.Errorf("the API server aborted the request: %v", p))
		}
	}()
	handler.ServeHTTP(r, req)
}
