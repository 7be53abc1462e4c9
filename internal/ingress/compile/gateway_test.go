// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// parsedAs returns objects of one type, each given as YAML. The first is the oldest.
func parsedAs[T any](t *testing.T, kind string, texts ...string) []*T {
	t.Helper()
	var all []*T
	for n, text := range texts {
		o := new(T)
		text = fmt.Sprintf("kind: %s\n%s", kind, text)
		if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		m := any(o).(metav1.Object)
		if m.GetNamespace() == "" {
			m.SetNamespace("ns")
		}
		m.SetGeneration(7)
		m.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(n), 0)))
		all = append(all, o)
	}
	return all
}

// gatewayObjects has the class and Services of objects; Gateways share the address 192.0.2.1.
func gatewayObjects(t *testing.T) GatewayObjects {
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "kindred"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: GatewayController}}
	return GatewayObjects{
		Objects: objects(), Classes: []*gatewayv1.GatewayClass{class}, Ingress: Ports{80, 443},
		NamespaceLabels: func(name string) map[string]string { return map[string]string{"name": name} },
		Place: func(*gatewayv1.Gateway) Place {
			return Place{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
		},
	}
}

// summary returns the conditions that are not as they should be, with their reasons.
func summary(conditions []metav1.Condition) string {
	var all []string
	for _, c := range conditions {
		if (c.Status == metav1.ConditionTrue) == (c.Type == string(gatewayv1.ListenerConditionConflicted)) {
			all = append(all, c.Type+" "+c.Reason)
		}
		if c.ObservedGeneration != 7 {
			all = append(all, c.Type+" is not of this generation")
		}
	}
	return strings.Join(all, ", ")
}

// TestListeners: the conditions of listeners, by themselves and beside others.
func TestListeners(t *testing.T) {
	for _, c := range []struct{ name, listeners, gateway, want string }{
		{"HTTP", "{name: a, port: 80, protocol: HTTP}", "", "a[HTTPRoute GRPCRoute]: "},
		{"TLS that is passed through", "{name: a, port: 8443, protocol: TLS, tls: {mode: Passthrough}}", "", "a[TLSRoute]: "},
		{"TLS that is terminated", "{name: a, port: 8443, protocol: TLS, tls: {mode: Terminate}}", "Accepted ListenersNotValid, Programmed Invalid", "a[]: Accepted UnsupportedValue, Programmed Invalid"},
		{"UDP", "{name: a, port: 53, protocol: UDP}", "Accepted ListenersNotValid, Programmed Invalid", "a[]: Accepted UnsupportedProtocol, Programmed Invalid"},
		{"no certificate", "{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: none}]}}", "Programmed Invalid", "a[HTTPRoute GRPCRoute]: Programmed Invalid, ResolvedRefs InvalidCertificateRef"},
		{"a certificate of another namespace", "{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: none, namespace: other}]}}", "Programmed Invalid", "a[HTTPRoute GRPCRoute]: Programmed Invalid, ResolvedRefs RefNotPermitted"},
		{"kinds", "{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: TLSRoute}]}}", "", "a[HTTPRoute]: ResolvedRefs InvalidRouteKinds"},
		{"one of two", "{name: a, port: 80, protocol: HTTP}, {name: b, port: 81, protocol: TCP}", "", "a[HTTPRoute GRPCRoute]: ; b[]: Accepted UnsupportedProtocol, Programmed Invalid"},
		{"protocols at one port", "{name: a, port: 90, protocol: HTTP}, {name: b, port: 90, protocol: TLS, tls: {mode: Passthrough}}", "Accepted ListenersNotValid, Programmed Invalid",
			"a[HTTPRoute GRPCRoute]: Accepted ProtocolConflict, Programmed Invalid, Conflicted ProtocolConflict; b[TLSRoute]: Accepted ProtocolConflict, Programmed Invalid, Conflicted ProtocolConflict"},
		{"the port of Ingresses", "{name: a, port: 443, protocol: HTTP}", "Accepted ListenersNotValid, Programmed Invalid", "a[HTTPRoute GRPCRoute]: Accepted PortUnavailable, Programmed Invalid"},
		{"the hostname of an older Gateway", "{name: a, port: 8080, protocol: HTTP, hostname: a.example}", "Accepted ListenersNotValid, Programmed Invalid", "a[HTTPRoute GRPCRoute]: Accepted HostnameConflict, Programmed Invalid, Conflicted HostnameConflict"},
		{"beside the hostname of an older Gateway", "{name: a, port: 8080, protocol: HTTP, hostname: b.example}", "", "a[HTTPRoute GRPCRoute]: "},
	} {
		o := gatewayObjects(t)
		o.Gateways = parsedAs[gatewayv1.Gateway](t, "Gateway",
			"metadata: {name: older}\nspec: {gatewayClassName: kindred, listeners: [{name: h, port: 8080, protocol: HTTP, hostname: a.example}]}",
			"metadata: {name: g}\nspec: {gatewayClassName: kindred, listeners: ["+c.listeners+"]}",
			"metadata: {name: theirs}\nspec: {gatewayClassName: other, listeners: ["+c.listeners+"]}")
		result := CompileGateways(o)
		status := result.Statuses[types.NamespacedName{Namespace: "ns", Name: "g"}]
		var got []string
		for _, l := range status.Listeners {
			var kinds []string
			for _, k := range l.SupportedKinds {
				kinds = append(kinds, string(k.Kind))
			}
			got = append(got, fmt.Sprintf("%s%s: %s", l.Name, kinds, summary(l.Conditions)))
		}
		gateway := summary(status.Conditions)
		if c.name == "one of two" && status.Conditions[0].Reason != "ListenersNotValid" {
			t.Errorf("%s: %+v", c.name, status.Conditions)
		}
		if text := strings.Join(got, "; "); text != c.want || gateway != c.gateway {
			t.Errorf("%s: %q and %q, want %q and %q", c.name, gateway, text, c.gateway, c.want)
		}
		if len(result.Statuses) != 2 {
			t.Errorf("%s: %d Gateways", c.name, len(result.Statuses))
		}
	}
}

// TestPlaces: addresses that a Gateway shares, has for itself, or does not get.
func TestPlaces(t *testing.T) {
	own := netip.MustParseAddr("192.0.2.9")
	for _, c := range []struct {
		place           Place
		want, addresses string
	}{
		{Place{Addresses: []netip.Addr{own}}, "", "invalid IP"},
		{Place{Addresses: []netip.Addr{own}, Own: true}, "", "192.0.2.9"},
		{Place{Reason: "AddressNotUsable", Message: "m"}, "Programmed AddressNotUsable", ""},
		{Place{Unsupported: true, Reason: "UnsupportedAddress", Message: "m"}, "Accepted UnsupportedAddress, Programmed Invalid", ""},
	} {
		o := gatewayObjects(t)
		o.Place = func(*gatewayv1.Gateway) Place { return c.place }
		o.Gateways = parsedAs[gatewayv1.Gateway](t, "Gateway", "metadata: {name: g}\nspec: {gatewayClassName: kindred, listeners: [{name: h, port: 80, protocol: HTTP}]}")
		result := CompileGateways(o)
		status := result.Statuses[types.NamespacedName{Namespace: "ns", Name: "g"}]
		var addresses []string
		for _, l := range result.Listeners {
			addresses = append(addresses, l.Address.String())
		}
		if got := summary(status.Conditions); got != c.want || strings.Join(addresses, " ") != c.addresses {
			t.Errorf("%+v: %q at %q", c.place, got, addresses)
		}
	}
}

// TestAttachment: which routes listeners accept, and why not.
func TestAttachment(t *testing.T) {
	gateway := "metadata: {name: g}\nspec: {gatewayClassName: kindred, listeners: [" +
		"{name: same, port: 80, protocol: HTTP, hostname: '*.example.com'}, " +
		"{name: all, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: HTTPRoute}]}}, " +
		"{name: some, port: 82, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {name: chosen}}}}}]}"
	backend := "rules: [{backendRefs: [{name: web, port: 80}]}]"
	for _, c := range []struct {
		namespace, spec, want string
		attached              []int32
	}{
		{"ns", "parentRefs: [{name: g}]\n" + backend, "", []int32{1, 1, 0}},
		{"ns", "parentRefs: [{name: g, sectionName: all}]\n" + backend, "", []int32{0, 1, 0}},
		{"ns", "parentRefs: [{name: g, port: 80}]\n" + backend, "", []int32{1, 0, 0}},
		{"ns", "parentRefs: [{name: g, sectionName: all, port: 80}]\n" + backend, "Accepted NoMatchingParent", []int32{0, 0, 0}},
		{"ns", "parentRefs: [{name: g, sectionName: same}]\nhostnames: [a.example.org]\n" + backend, "Accepted NoMatchingListenerHostname", []int32{0, 0, 0}},
		{"ns", "parentRefs: [{name: g, sectionName: same}]\nhostnames: [a.example.com, example.com]\n" + backend, "", []int32{1, 0, 0}},
		{"other", "parentRefs: [{name: g, namespace: ns, sectionName: same}]\n" + backend, "Accepted NotAllowedByListeners, ResolvedRefs BackendNotFound", []int32{0, 0, 0}},
		{"chosen", "parentRefs: [{name: g, namespace: ns}]\nrules: [{backendRefs: [{name: web, namespace: ns, port: 80}]}]", "", []int32{0, 1, 1}},
		{"other", "parentRefs: [{name: g, namespace: ns}]\nrules: [{backendRefs: [{name: web, namespace: ns, port: 80}]}]", "ResolvedRefs RefNotPermitted", []int32{0, 1, 0}},
		{"ns", "parentRefs: [{name: g}]\nrules: [{backendRefs: [{name: web, port: 81}]}]", "ResolvedRefs BackendNotFound", []int32{1, 1, 0}},
		{"ns", "parentRefs: [{name: g}]\nrules: [{backendRefs: [{name: web, kind: Other, port: 80}]}]", "ResolvedRefs InvalidKind", []int32{1, 1, 0}},
		{"ns", "parentRefs: [{name: g}]\nrules: [{filters: [{type: CORS, cors: {}}]}]", "Accepted UnsupportedValue", []int32{0, 0, 0}},
		{"ns", "parentRefs: [{name: g}]\nrules: [{matches: [{path: {type: RegularExpression, value: '('}}]}]", "Accepted UnsupportedValue", []int32{0, 0, 0}},
		{"ns", "parentRefs: [{name: other}]\n" + backend, "no status", []int32{0, 0, 0}},
	} {
		o := gatewayObjects(t)
		o.Gateways = parsedAs[gatewayv1.Gateway](t, "Gateway", gateway)
		text := "metadata: {name: r, namespace: " + c.namespace + "}\nspec:\n  " + strings.ReplaceAll(c.spec, "\n", "\n  ")
		o.HTTPRoutes = parsedAs[gatewayv1.HTTPRoute](t, "HTTPRoute", text)
		o.Grants = parsedAs[gatewayv1.ReferenceGrant](t, "ReferenceGrant",
			"metadata: {name: r}\nspec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: chosen}], to: [{group: '', kind: Service, name: web}]}",
			"metadata: {name: r, namespace: elsewhere}\nspec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: other}], to: [{group: '', kind: Service}]}")
		o.HTTPRoutes[0].Status.Parents = []gatewayv1.RouteParentStatus{{ControllerName: "example.com/theirs"}, {ControllerName: GatewayController}}
		result := CompileGateways(o)
		parents := result.Routes[RouteKey{"HTTPRoute", types.NamespacedName{Namespace: c.namespace, Name: "r"}}].Parents
		got := "no status"
		if len(parents) > 1 {
			got = summary(parents[1].Conditions)
		}
		if len(parents) == 0 || parents[0].ControllerName != "example.com/theirs" {
			t.Errorf("the status of another controller is lost: %+v", parents)
		}
		var attached []int32
		for _, l := range result.Statuses[types.NamespacedName{Namespace: "ns", Name: "g"}].Listeners {
			attached = append(attached, l.AttachedRoutes)
		}
		if got != c.want || !slices.Equal(attached, c.attached) {
			t.Errorf("%s: %q at %v, want %q at %v", c.spec, got, attached, c.want, c.attached)
		}
	}
}

func TestIntersection(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"", "", ""}, {"", "a.b", "a.b"}, {"a.b", "a.b", "a.b"}, {"*.b", "a.b", "a.b"}, {"*.b", "x.a.b", "x.a.b"},
		{"*.b", "*.a.b", "*.a.b"}, {"*.b", "b", "none"}, {"*.b", "a.c", "none"}, {"a.b", "c.b", "none"}, {"*.b", "ab", "none"},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			got, ok := intersection(pair[0], pair[1])
			if !ok {
				got = "none"
			}
			if got != c.want {
				t.Errorf("%q: %q, want %q", pair, got, c.want)
			}
		}
	}
}

// TestGatewayRules: what requests are matched by, and what happens to them.
func TestGatewayRules(t *testing.T) {
	o := gatewayObjects(t)
	o.Gateways = parsedAs[gatewayv1.Gateway](t, "Gateway", "metadata: {name: g}\nspec: {gatewayClassName: kindred, listeners: [{name: h, port: 80, protocol: HTTP}, {name: t, port: 8443, protocol: TLS, hostname: '*.example.com', tls: {mode: Passthrough}}]}")
	o.HTTPRoutes = parsedAs[gatewayv1.HTTPRoute](t, "HTTPRoute",
		`
metadata: {name: r}
spec:
  parentRefs: [{name: g}]
  rules:
  - matches: [{path: {type: Exact, value: /a}, method: GET, headers: [{name: x-y, value: "1"}], queryParams: [{name: q, type: RegularExpression, value: "[0-9]"}]}]
    timeouts: {request: 2s, backendRequest: 1s}
    retry: {attempts: 3, backoff: 10ms, codes: [502, 503]}
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: S, value: s}], add: [{name: A, value: a}], remove: [R]}}
    - {type: URLRewrite, urlRewrite: {hostname: h, path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}
    - {type: RequestMirror, requestMirror: {backendRef: {name: web, port: 90}, percent: 20}}
    backendRefs: [{name: web, port: 80, weight: 9}, {name: none, port: 80}]
  - matches: [{path: {value: /gone}}]
    filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: other, port: 8443, statusCode: 301, path: {type: ReplaceFullPath, replaceFullPath: /x}}}]
`)
	o.GRPCRoutes = parsedAs[gatewayv1.GRPCRoute](t, "GRPCRoute", "metadata: {name: r}\nspec: {parentRefs: [{name: g}], hostnames: [rpc], rules: [{matches: [{method: {service: s, method: m}}, {method: {method: any}}], backendRefs: [{name: web, port: 80}]}]}")
	o.TLSRoutes = parsedAs[gatewayv1.TLSRoute](t, "TLSRoute", "metadata: {name: r}\nspec: {parentRefs: [{name: g}], hostnames: [a.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}")
	result := CompileGateways(o)
	table := route.New(result.Listeners)
	plain := table.Listener(netip.MustParseAddrPort("192.0.2.1:80"), "a")
	request := route.Request{Host: "a", Path: "/a", Method: "GET", Header: map[string][]string{"X-Y": {"1"}}, Query: map[string][]string{"q": {"5"}}}
	rule := plain.Find(request)
	if rule == nil {
		t.Fatal("no rule")
	}
	got := fmt.Sprintf("%v %v %+v %v %+v %d/%d", rule.Action.Timeout, rule.Action.BackendTimeout, rule.Action.Changes.Request, rule.Action.Rewrite.Host, *rule.Action.Rewrite.Path,
		rule.Action.Mirrors[0].Numerator, rule.Action.Mirrors[0].Denominator)
	if want := "2s 1s {Set:[{Name:S Value:s}] Add:[{Name:A Value:a}] Remove:[R]} h {Prefix:true Value:/b} 20/100"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if b := rule.Action.Backends; len(b) != 2 || b[0].Weight != 9 || b[0].Refusal != nil || b[1].Weight != 1 || b[1].Refusal == nil || b[1].Refusal.Status != 500 {
		t.Errorf("backends %+v", b)
	}
	if got, want := rule.Action.Retry, (&route.Retry{Attempts: 3, Backoff: 10 * time.Millisecond, Statuses: []int{502, 503}}); !reflect.DeepEqual(got, want) {
		t.Errorf("retries %+v, want %+v", got, want)
	}
	request.Query["q"] = []string{"55"}
	if plain.Find(request) != nil {
		t.Error("a regular expression matches a part")
	}
	gone := plain.Find(route.Request{Host: "a", Path: "/gone/1", Method: "PUT"})
	if gone == nil || *gone.Action.Redirect.Path != (route.PathRewrite{Value: "/x"}) || gone.Action.Redirect.Status != 301 || gone.Action.Redirect.Port != 8443 {
		t.Errorf("redirect %+v", gone)
	}
	for path, want := range map[string]bool{"/s/m": true, "/other/any": true, "/s/other": false, "/s/m/x": false} {
		found := plain.Find(route.Request{Host: "rpc", Path: path, Method: "POST"})
		if ok := found != nil && found.Action.Object == "GRPCRoute ns/r" && found.Action.Backends[0].Protocol == route.H2C; ok != want {
			t.Errorf("%s: %v, want %v", path, ok, want)
		}
	}
	passed := table.Listener(netip.MustParseAddrPort("192.0.2.1:8443"), "a.example.com")
	if passed == nil || passed.Find(route.Request{Host: "a.example.com", Path: "/"}) == nil || passed.Find(route.Request{Host: "b.example.com", Path: "/"}) != nil {
		t.Error("a TLSRoute is not passed through by its hostname")
	}
}

// TestTransitions: the time of a condition changes with its status only.
func TestTransitions(t *testing.T) {
	o := gatewayObjects(t)
	o.Now = metav1.NewTime(time.Unix(100, 0))
	o.Gateways = parsedAs[gatewayv1.Gateway](t, "Gateway", "metadata: {name: g}\nspec: {gatewayClassName: kindred, listeners: [{name: h, port: 80, protocol: HTTP}]}")
	key := types.NamespacedName{Namespace: "ns", Name: "g"}
	o.Gateways[0].Status = CompileGateways(o).Statuses[key]
	o.Now = metav1.NewTime(time.Unix(200, 0))
	o.Failed = map[uint16]string{80: "in use"}
	for _, c := range CompileGateways(o).Statuses[key].Conditions {
		want := map[string]int64{"Accepted": 100, "Programmed": 200}[c.Type]
		if c.LastTransitionTime.Unix() != want {
			t.Errorf("%s at %d, want %d", c.Type, c.LastTransitionTime.Unix(), want)
		}
	}
	o.Classes[0].Spec.ParametersRef = ptr.To(gatewayv1.ParametersReference{})
	if result := CompileGateways(o); len(result.Statuses) != 0 || result.Classes["kindred"].Conditions[0].Reason != "InvalidParameters" {
		t.Errorf("%+v", result)
	}
}
