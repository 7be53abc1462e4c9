// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

func objects() Objects {
	services := map[string]*v1.Service{
		"ns/web": {Spec: v1.ServiceSpec{Ports: []v1.ServicePort{
			{Name: "http", Port: 80}, {Name: "rpc", Port: 90, AppProtocol: ptr.To("kubernetes.io/h2c")}, {Name: "udp", Port: 53, Protocol: v1.ProtocolUDP},
		}}},
		"ns/other": {Spec: v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: "example.com"}},
	}
	return Objects{
		Service:      func(namespace, name string) *v1.Service { return services[namespace+"/"+name] },
		Secret:       func(string, string) *v1.Secret { return nil },
		Certificates: &Certificates{},
	}
}

func ingress(name string, spec networkingv1.IngressSpec) *networkingv1.Ingress {
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: spec}
}

func backendOf(service string, port networkingv1.ServiceBackendPort) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: port}}
}

// TestBackends: what an Ingress refers to, and what it gets.
func TestBackends(t *testing.T) {
	for _, c := range []struct {
		backend networkingv1.IngressBackend
		want    string
	}{
		{backendOf("web", networkingv1.ServiceBackendPort{Number: 80}), "ns/web:80 0"},
		{backendOf("web", networkingv1.ServiceBackendPort{Name: "rpc"}), "ns/web:90 1"},
		{backendOf("web", networkingv1.ServiceBackendPort{Number: 81}), "port 81: the Service ns/web has no such TCP port"},
		{backendOf("web", networkingv1.ServiceBackendPort{Name: "udp"}), `port "udp": the Service ns/web has no such TCP port`},
		{backendOf("none", networkingv1.ServiceBackendPort{Number: 80}), "port 80: the Service ns/none does not exist"},
		{backendOf("other", networkingv1.ServiceBackendPort{Number: 80}), "ExternalName, which is not supported"},
		{networkingv1.IngressBackend{Resource: &v1.TypedLocalObjectReference{}}, "only Services are supported"},
	} {
		i := ingress("i", networkingv1.IngressSpec{DefaultBackend: &c.backend})
		listeners, problems := Ingresses([]*networkingv1.Ingress{i}, Ports{80, 443}, objects())
		got := listeners[0].Rules[0].Action.Backends[0]
		text := fmt.Sprintf("%s:%d %d", got.Service, got.Port, got.Protocol)
		if got.Refusal != nil {
			text = got.Refusal.Text
			if len(problems) != 1 || problems[0].Reason != "BackendUnavailable" || !strings.HasSuffix(text, problems[0].Message) || got.Refusal.Status != 503 {
				t.Errorf("%v: refusal %+v, problems %+v", c.backend, got.Refusal, problems)
			}
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%v: %q, want %q", c.backend, text, c.want)
		}
	}
}

// TestRules: hosts, types of paths and default backends of Ingresses in one table.
func TestRules(t *testing.T) {
	web := backendOf("web", networkingv1.ServiceBackendPort{Number: 80})
	path := func(kind networkingv1.PathType, p string) networkingv1.HTTPIngressPath {
		return networkingv1.HTTPIngressPath{Path: p, PathType: &kind, Backend: web}
	}
	http := func(paths ...networkingv1.HTTPIngressPath) networkingv1.IngressRuleValue {
		return networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}
	}
	all := []*networkingv1.Ingress{
		ingress("exact", networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "A.example.com", IngressRuleValue: http(path(networkingv1.PathTypeExact, "/x"))}}}),
		ingress("prefix", networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a.example.com", IngressRuleValue: http(path(networkingv1.PathTypePrefix, "/x"))}}}),
		ingress("wild", networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "*.example.com", IngressRuleValue: http(path(networkingv1.PathTypeImplementationSpecific, ""))}}}),
		ingress("default", networkingv1.IngressSpec{DefaultBackend: &web, Rules: []networkingv1.IngressRule{{Host: "bare.com"}}}),
		ingress("second", networkingv1.IngressSpec{DefaultBackend: &web}),
		ingress("later", networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{IngressRuleValue: http(path(networkingv1.PathTypePrefix, "/all"))}}}),
	}
	listeners, problems := Ingresses(all, Ports{80, 443}, objects())
	if len(problems) > 0 {
		t.Errorf("problems %+v", problems)
	}
	table := route.New(listeners)
	for _, c := range []struct{ host, path, want string }{
		{"a.example.com", "/x", "exact"},
		{"a.example.com", "/x/", "prefix"},
		{"a.example.com", "/y", "wild"},
		{"b.example.com", "/", "wild"},
		{"b.c.example.com", "/", "default"}, // the wildcard of an Ingress is one label
		{"example.com", "/", "default"},
		{"example.com", "/all/1", "later"},
		{"bare.com", "/all/1", "default"},
	} {
		for _, port := range []string{"80", "443"} {
			l := table.Listener(netip.MustParseAddrPort("127.0.0.1:"+port), c.host)
			if got := l.Find(route.Request{Host: c.host, Path: c.path, Method: "GET"}); got == nil || got.Action.Object != "Ingress ns/"+c.want {
				t.Errorf("%s%s: %+v, want that of %s", c.host, c.path, got, c.want)
			}
		}
	}
}

func TestOurs(t *testing.T) {
	classes := []*networkingv1.IngressClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Spec: networkingv1.IngressClassSpec{Controller: Controller}},
		{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/theirs"}},
	}
	annotated := ingress("annotated", networkingv1.IngressSpec{})
	annotated.Annotations = map[string]string{classAnnotation: "ours"}
	all := []*networkingv1.Ingress{
		ingress("b", networkingv1.IngressSpec{IngressClassName: ptr.To("ours")}),
		ingress("theirs", networkingv1.IngressSpec{IngressClassName: ptr.To("theirs")}),
		ingress("missing", networkingv1.IngressSpec{IngressClassName: ptr.To("missing")}),
		ingress("none", networkingv1.IngressSpec{}), annotated,
	}
	var names []string
	for _, i := range Ours(all, classes) {
		names = append(names, i.Name)
	}
	if want := []string{"annotated", "b"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

func TestMissingSecret(t *testing.T) {
	i := ingress("i", networkingv1.IngressSpec{TLS: []networkingv1.IngressTLS{{Hosts: []string{"a"}, SecretName: "none"}}})
	_, problems := Ingresses([]*networkingv1.Ingress{i}, Ports{80, 443}, objects())
	if len(problems) != 1 || problems[0].Message != "no Secret ns/none of the type kubernetes.io/tls" {
		t.Errorf("%+v", problems)
	}
}

func TestEndpoints(t *testing.T) {
	svc := &v1.Service{Spec: v1.ServiceSpec{IPFamilies: []v1.IPFamily{v1.IPv4Protocol}, Ports: []v1.ServicePort{{Name: "http", Port: 80}}}}
	endpoint := func(address string, ready bool, terminating bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: ptr.To(ready || terminating), Terminating: &terminating}}
	}
	slice := func(family discoveryv1.AddressType, port string, of ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{AddressType: family, Endpoints: of, Ports: []discoveryv1.EndpointPort{{Name: &port, Port: ptr.To[int32](8080)}}}
	}
	for _, c := range []struct {
		name   string
		slices []*discoveryv1.EndpointSlice
		want   string
	}{
		{"ready only", []*discoveryv1.EndpointSlice{slice("IPv4", "http", endpoint("10.0.0.2", true, false), endpoint("10.0.0.1", true, false), endpoint("10.0.0.3", false, false), endpoint("10.0.0.4", false, true))}, "[10.0.0.1:8080 10.0.0.2:8080]"},
		{"terminating, if none is ready", []*discoveryv1.EndpointSlice{slice("IPv4", "http", endpoint("10.0.0.3", false, false), endpoint("10.0.0.4", false, true))}, "[10.0.0.4:8080]"},
		{"another family", []*discoveryv1.EndpointSlice{slice("IPv6", "http", endpoint("fd00::1", true, false))}, "[]"},
		{"another port", []*discoveryv1.EndpointSlice{slice("IPv4", "metrics", endpoint("10.0.0.1", true, false))}, "[]"},
		{"in two slices", []*discoveryv1.EndpointSlice{slice("IPv4", "http", endpoint("10.0.0.1", true, false)), slice("IPv4", "http", endpoint("10.0.0.1", true, false))}, "[10.0.0.1:8080]"},
	} {
		if got := fmt.Sprint(Endpoints(svc, 80, c.slices)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := Endpoints(svc, 81, nil); got != nil {
		t.Errorf("a port that the Service does not have: %v", got)
	}
}
