// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/http"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// addFilters adds the filters of a rule to its action. The whole route is refused if one of them is not supported,
// because requests would reach backends without it.
func (c *gatewayCompiler) addFilters(r *anyRoute, action *route.Action, filters []gatewayv1.HTTPRouteFilter) {
	for _, f := range filters {
		switch {
		case addChanges(&action.Changes, f):
		case f.Type == gatewayv1.HTTPRouteFilterRequestRedirect && f.RequestRedirect != nil:
			action.Redirect = redirect(f.RequestRedirect)
		case f.Type == gatewayv1.HTTPRouteFilterURLRewrite && f.URLRewrite != nil:
			action.Rewrite = route.Rewrite{Host: string(ptr.Deref(f.URLRewrite.Hostname, "")), Path: pathRewrite(f.URLRewrite.Path)}
		case f.Type == gatewayv1.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
			c.addMirror(r, action, f.RequestMirror)
		default:
			r.unsupported("the filter %s is not supported", f.Type)
		}
	}
}

// addBackendFilters adds the filters of one backend.
func (r *anyRoute) addBackendFilters(backend *route.Backend, filters []gatewayv1.HTTPRouteFilter) {
	for _, f := range filters {
		if !addChanges(&backend.Changes, f) {
			r.unsupported("the filter %s of a backend is not supported", f.Type)
		}
	}
}

// addChanges adds the changes of headers that a filter makes; false if it is another filter.
func addChanges(to *route.Changes, f gatewayv1.HTTPRouteFilter) bool {
	switch {
	case f.Type == gatewayv1.HTTPRouteFilterRequestHeaderModifier && f.RequestHeaderModifier != nil:
		to.Request = headers(f.RequestHeaderModifier)
	case f.Type == gatewayv1.HTTPRouteFilterResponseHeaderModifier && f.ResponseHeaderModifier != nil:
		to.Response = headers(f.ResponseHeaderModifier)
	default:
		return false
	}
	return true
}

func headers(f *gatewayv1.HTTPHeaderFilter) route.Headers {
	changes := route.Headers{Remove: f.Remove}
	for _, h := range f.Set {
		changes.Set = append(changes.Set, route.Header{Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Add {
		changes.Add = append(changes.Add, route.Header{Name: string(h.Name), Value: h.Value})
	}
	return changes
}

func redirect(f *gatewayv1.HTTPRequestRedirectFilter) *route.Redirect {
	return &route.Redirect{
		Scheme: ptr.Deref(f.Scheme, ""), Host: string(ptr.Deref(f.Hostname, "")), Port: int(ptr.Deref(f.Port, 0)),
		Path: pathRewrite(f.Path), Status: ptr.Deref(f.StatusCode, http.StatusFound),
	}
}

func pathRewrite(m *gatewayv1.HTTPPathModifier) *route.PathRewrite {
	switch {
	case m == nil:
		return nil
	case m.Type == gatewayv1.PrefixMatchHTTPPathModifier:
		return &route.PathRewrite{Prefix: true, Value: ptr.Deref(m.ReplacePrefixMatch, "/")}
	}
	return &route.PathRewrite{Value: ptr.Deref(m.ReplaceFullPath, "/")}
}

// addMirror adds a mirror. One without a usable backend gets no requests, and is a fault of the route.
func (c *gatewayCompiler) addMirror(r *anyRoute, action *route.Action, f *gatewayv1.HTTPRequestMirrorFilter) {
	backend, broken := c.resolve(r, f.BackendRef)
	if broken.reason != "" {
		return
	}
	if r.kind == grpcRoute && backend.Protocol == route.HTTP1 {
		backend.Protocol = route.H2C
	}
	mirror := route.Mirror{Backend: backend, Numerator: 100, Denominator: 100}
	switch {
	case f.Percent != nil:
		mirror.Numerator = int(*f.Percent)
	case f.Fraction != nil:
		mirror.Numerator, mirror.Denominator = int(f.Fraction.Numerator), int(ptr.Deref(f.Fraction.Denominator, 100))
	}
	action.Mirrors = append(action.Mirrors, mirror)
}
