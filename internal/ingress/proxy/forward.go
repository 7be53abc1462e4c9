// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// exchange is the state of a request that is forwarded.
type exchange struct {
	rule    *route.Rule
	backend *route.Backend
	// mirrored is set if this is the copy of a request.
	mirrored bool
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// forward sends a request to one of the backends, and copies of it to the mirrors.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, rule *route.Rule) {
	a := rule.Action
	backend := choose(a.Backends)
	if backend == nil {
		refuse(w, http.StatusInternalServerError, a.Object+" has no backend for this request")
		return
	}
	if backend.Refusal != nil {
		refuse(w, backend.Refusal.Status, backend.Refusal.Text)
		return
	}
	if len(a.Mirrors) > 0 && !upgrades(r) {
		kept := keep(r)
		defer s.mirror(r, kept, rule)
	}
	s.exchange(w, r, &exchange{rule: rule, backend: backend})
}

// exchange forwards a request. The timeout does not apply to upgraded connections, such as WebSockets.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request, x *exchange) {
	ctx := context.WithValue(r.Context(), exchangeKey{}, x)
	if limit := x.rule.Action.Timeout; limit > 0 && !upgrades(r) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	s.forwarding.ServeHTTP(w, r.WithContext(ctx))
}

// upgrades reports whether a request changes the protocol of its connection.
func upgrades(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// choose returns a backend, in proportion to the weights; nil if none has a weight.
func choose(backends []route.Backend) *route.Backend {
	total := 0
	for _, b := range backends {
		total += b.Weight
	}
	if total == 0 {
		return nil
	}
	drawn := rand.IntN(total)
	for i := range backends {
		if drawn < backends[i].Weight {
			return &backends[i]
		}
		drawn -= backends[i].Weight
	}
	return nil
}

func (s *Server) newForwarding() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: &s.transports, ErrorHandler: failed, ErrorLog: silent,
		ModifyResponse: func(answer *http.Response) error {
			x := exchangeOf(answer.Request.Context())
			edit(answer.Header, x.backend.Changes.Response)
			edit(answer.Header, x.rule.Action.Changes.Response)
			return nil
		},
	}
}

// rewrite makes the request that the backend gets. Headers that tell the client's address are those of this hop:
// what a client claims is dropped, as ingress-nginx does.
func rewrite(r *httputil.ProxyRequest) {
	x := exchangeOf(r.In.Context())
	r.SetXForwarded()
	r.Out.Header.Set("X-Forwarded-Port", portName(localAddress(r.In).Port()))
	if client, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		r.Out.Header.Set("X-Real-Ip", client)
	}
	r.Out.Host = r.In.Host
	r.Out.URL.RawQuery = r.In.URL.RawQuery // ReverseProxy removes what it cannot parse
	if x.mirrored {
		r.Out.Header.Del("Expect")
	}
	change := x.rule.Action.Rewrite
	if change.Host != "" {
		r.Out.Host = change.Host
	}
	if change.Path != nil {
		rewritePath(r.Out.URL, *change.Path, x.rule.Match.Path)
	}
	for _, changes := range []route.Headers{x.rule.Action.Changes.Request, x.backend.Changes.Request} {
		edit(r.Out.Header, changes)
	}
	if host := r.Out.Header.Get("Host"); host != "" {
		r.Out.Host = host
		r.Out.Header.Del("Host")
	}
}

// rewritePath changes the path of a URL. What is escaped in it stays so.
func rewritePath(u *url.URL, change route.PathRewrite, matched route.Path) {
	escaped := u.EscapedPath()
	u.Path = change.Replaced(u.Path, matched)
	u.RawPath = change.Replaced(escaped, matched) // ignored by package url if it is not the same path
}

// unavailableError is that of a Service without endpoints.
type unavailableError struct{ service string }

func (e unavailableError) Error() string {
	return "no endpoint of the Service " + e.service + " is ready"
}

// failed answers a request that no backend has answered.
func failed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	var unavailable unavailableError
	switch {
	case errors.As(err, &unavailable):
		refuse(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		refuse(w, http.StatusGatewayTimeout, fmt.Sprintf("the Service %s has not answered in time", x.backend.Service))
	default:
		refuse(w, http.StatusBadGateway, fmt.Sprintf("the Service %s has not answered: its connection failed", x.backend.Service))
	}
}
