// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// addRule adds a rule with one of its matches.
func (r *anyRoute) addRule(match route.Match, action *route.Action) {
	r.rules = append(r.rules, route.Rule{
		Match: match, Action: action,
		Order: route.Order{Created: r.meta.CreationTimestamp.Time, Name: r.meta.Namespace + "/" + r.meta.Name, Index: len(r.rules)},
	})
}

func (r *anyRoute) unsupported(format string, args ...any) {
	if r.accepted.reason == "" {
		r.accepted = fault{string(gatewayv1.RouteReasonUnsupportedValue), fmt.Sprintf(format, args...)}
	}
}

func (c *gatewayCompiler) addHTTPRules(r *anyRoute, rules []gatewayv1.HTTPRouteRule) {
	for i := range rules {
		rule := &rules[i]
		action := &route.Action{Object: r.name()}
		c.addFilters(r, action, rule.Filters)
		for _, b := range rule.BackendRefs {
			backend := c.backendOf(r, b.BackendRef)
			r.addBackendFilters(&backend, b.Filters)
			action.Backends = append(action.Backends, backend)
		}
		if rule.Timeouts != nil {
			action.Timeout = r.duration(rule.Timeouts.Request)
			action.BackendTimeout = r.duration(rule.Timeouts.BackendRequest)
		}
		action.Retry = r.retry(rule.Retry)
		if len(rule.Matches) == 0 {
			r.addRule(route.Match{Path: route.Path{Value: "/"}}, action)
		}
		for _, m := range rule.Matches {
			r.addRule(r.httpMatch(m), action)
		}
	}
}

func (r *anyRoute) httpMatch(m gatewayv1.HTTPRouteMatch) route.Match {
	match := route.Match{Path: route.Path{Value: "/"}, Method: string(ptr.Deref(m.Method, ""))}
	if m.Path != nil {
		match.Path = r.path(ptr.Deref(m.Path.Type, gatewayv1.PathMatchPathPrefix), ptr.Deref(m.Path.Value, "/"))
	}
	for _, h := range m.Headers {
		match.Headers = append(match.Headers, r.value(http.CanonicalHeaderKey(string(h.Name)), h.Value, ptr.Deref(h.Type, "") == gatewayv1.HeaderMatchRegularExpression))
	}
	for _, q := range m.QueryParams {
		match.Queries = append(match.Queries, r.value(string(q.Name), q.Value, ptr.Deref(q.Type, "") == gatewayv1.QueryParamMatchRegularExpression))
	}
	return match
}

func (r *anyRoute) path(kind gatewayv1.PathMatchType, value string) route.Path {
	switch kind {
	case gatewayv1.PathMatchExact:
		return route.Path{Type: route.Exact, Value: value}
	case gatewayv1.PathMatchRegularExpression:
		return route.Path{Type: route.Regex, Value: value, Regex: r.regex(value)}
	case gatewayv1.PathMatchPathPrefix:
		return route.Path{Value: value}
	}
	r.unsupported("paths of the type %s are not supported", kind)
	return route.Path{Value: value}
}

func (r *anyRoute) value(name, value string, isRegex bool) route.Value {
	condition := route.Value{Name: name, Value: value}
	if isRegex {
		condition.Regex = r.regex(value)
	}
	return condition
}

// regex returns a regular expression that matches whole values.
func (r *anyRoute) regex(text string) *regexp.Regexp {
	expression, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		r.unsupported("the regular expression %q is not valid: %v", text, err)
		return regexp.MustCompile(`^\b$`) // matches nothing
	}
	return expression
}

func (r *anyRoute) duration(d *gatewayv1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	parsed, err := time.ParseDuration(string(*d))
	if err != nil || parsed < 0 {
		r.unsupported("the duration %q is not valid", *d)
		return 0
	}
	return parsed
}

// retry returns the retries of a rule. Without a number of attempts there is one, as the API leaves it open.
func (r *anyRoute) retry(from *gatewayv1.HTTPRouteRetry) *route.Retry {
	if from == nil {
		return nil
	}
	retry := &route.Retry{Attempts: ptr.Deref(from.Attempts, 1), Backoff: r.duration(from.Backoff)}
	for _, code := range from.Codes {
		retry.Statuses = append(retry.Statuses, int(code))
	}
	return retry
}

// addGRPCRules adds the rules of a GRPCRoute: the path of a request is that of its method.
func (c *gatewayCompiler) addGRPCRules(r *anyRoute, rules []gatewayv1.GRPCRouteRule) {
	for i := range rules {
		rule := &rules[i]
		action := &route.Action{Object: r.name()}
		c.addFilters(r, action, httpFilters(rule.Filters))
		for _, b := range rule.BackendRefs {
			backend := c.backendOf(r, b.BackendRef)
			if backend.Protocol == route.HTTP1 {
				backend.Protocol = route.H2C
			}
			r.addBackendFilters(&backend, httpFilters(b.Filters))
			action.Backends = append(action.Backends, backend)
		}
		if len(rule.Matches) == 0 {
			r.addRule(route.Match{Path: route.Path{Value: "/"}}, action)
		}
		for _, m := range rule.Matches {
			match := route.Match{Path: r.grpcPath(m.Method)}
			for _, h := range m.Headers {
				match.Headers = append(match.Headers, r.value(http.CanonicalHeaderKey(string(h.Name)), h.Value, ptr.Deref(h.Type, "") == gatewayv1.GRPCHeaderMatchRegularExpression))
			}
			r.addRule(match, action)
		}
	}
}

func (r *anyRoute) grpcPath(m *gatewayv1.GRPCMethodMatch) route.Path {
	if m == nil {
		return route.Path{Value: "/"}
	}
	service, method := ptr.Deref(m.Service, ""), ptr.Deref(m.Method, "")
	if ptr.Deref(m.Type, "") == gatewayv1.GRPCMethodMatchRegularExpression {
		text := "/(?:" + cmp.Or(service, "[^/]+") + ")/(?:" + cmp.Or(method, "[^/]+") + ")"
		return route.Path{Type: route.Regex, Value: text, Regex: r.regex(text)}
	}
	switch {
	case service != "" && method != "":
		return route.Path{Type: route.Exact, Value: "/" + service + "/" + method}
	case service != "":
		return route.Path{Value: "/" + service}
	case method != "":
		text := "/[^/]+/" + regexp.QuoteMeta(method)
		return route.Path{Type: route.Regex, Value: text, Regex: r.regex(text)}
	}
	return route.Path{Value: "/"}
}

// httpFilters returns filters of a GRPCRoute as those of an HTTPRoute.
func httpFilters(from []gatewayv1.GRPCRouteFilter) []gatewayv1.HTTPRouteFilter {
	var to []gatewayv1.HTTPRouteFilter
	for _, f := range from {
		to = append(to, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier,
			ResponseHeaderModifier: f.ResponseHeaderModifier, RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return to
}

func (c *gatewayCompiler) addTLSRules(r *anyRoute, rules []gatewayv1.TLSRouteRule) {
	for i := range rules {
		action := &route.Action{Object: r.name()}
		for _, b := range rules[i].BackendRefs {
			action.Backends = append(action.Backends, c.backendOf(r, b))
		}
		r.addRule(route.Match{Path: route.Path{Value: "/"}}, action)
	}
}

// backendOf returns the backend that a route refers to. If it cannot be used, its requests are refused with the status
// 500, as the API demands.
func (c *gatewayCompiler) backendOf(r *anyRoute, ref gatewayv1.BackendRef) route.Backend {
	backend, f := c.resolve(r, ref.BackendObjectReference)
	backend.Weight = int(ptr.Deref(ref.Weight, 1))
	if f.reason != "" {
		backend.Refusal = &route.Refusal{Status: http.StatusInternalServerError, Text: r.name() + ": " + f.message}
	}
	return backend
}

// resolve finds a Service. A failure becomes the route's fault.
func (c *gatewayCompiler) resolve(r *anyRoute, ref gatewayv1.BackendObjectReference) (route.Backend, fault) {
	backend, f := c.lookUp(r, ref)
	if f.reason != "" && r.resolved.reason == "" {
		r.resolved = f
	}
	return backend, f
}

func (c *gatewayCompiler) lookUp(r *anyRoute, ref gatewayv1.BackendObjectReference) (route.Backend, fault) {
	namespace, name := string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.meta.Namespace))), string(ref.Name)
	switch {
	case ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Service") != "Service":
		return route.Backend{}, fault{string(gatewayv1.RouteReasonInvalidKind), fmt.Sprintf("the backend %s is no Service", name)}
	case !c.granted(r.kind, r.meta.Namespace, "Service", namespace, name):
		return route.Backend{}, fault{string(gatewayv1.RouteReasonRefNotPermitted), fmt.Sprintf("no ReferenceGrant allows the Service %s/%s", namespace, name)}
	case ref.Port == nil:
		return route.Backend{}, fault{string(gatewayv1.RouteReasonBackendNotFound), fmt.Sprintf("the backend %s needs a port", name)}
	}
	backend, err := c.backend(namespace, name, func(p v1.ServicePort) bool { return p.Port == *ref.Port })
	switch {
	case errors.Is(err, errMissing):
		return backend, fault{string(gatewayv1.RouteReasonBackendNotFound), err.Error()}
	case err != nil:
		return backend, fault{string(gatewayv1.RouteReasonBackendNotFound), fmt.Sprintf("port %d: %v", *ref.Port, err)}
	}
	return backend, fault{}
}
