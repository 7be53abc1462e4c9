// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func web(edit ...func(*networkingv1.Ingress)) *networkingv1.Ingress {
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: "example.com",
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "1-web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}}},
		}}},
	}
	for _, e := range edit {
		e(i)
	}
	return i
}

func path(edit func(*networkingv1.HTTPIngressPath)) func(*networkingv1.Ingress) {
	return func(i *networkingv1.Ingress) { edit(&i.Spec.Rules[0].HTTP.Paths[0]) }
}

func host(name string) func(*networkingv1.Ingress) {
	return func(i *networkingv1.Ingress) { i.Spec.Rules[0].Host = name }
}

func tls(secret string, hosts ...string) func(*networkingv1.Ingress) {
	return func(i *networkingv1.Ingress) {
		i.Spec.TLS = []networkingv1.IngressTLS{{SecretName: secret, Hosts: hosts}}
	}
}

func backend(b networkingv1.IngressBackend) func(*networkingv1.Ingress) {
	return path(func(p *networkingv1.HTTPIngressPath) { p.Backend = b })
}

func serviceBackend(name, port string, number int32) func(*networkingv1.Ingress) {
	return backend(networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: name, Port: networkingv1.ServiceBackendPort{Name: port, Number: number}}})
}

const backendPath = "spec.rules[0].http.paths[0].backend"

var (
	subdomain = validation.IsDNS1123Subdomain("A")[0]
	wildcard  = validation.IsWildcardDNS1123Subdomain("*a")[0]
	label     = validation.IsDNS1123Label("A")[0]
)

func TestIngressValidation(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*networkingv1.Ingress)
		want []string
	}{
		"valid":          {func(*networkingv1.Ingress) {}, nil},
		"nothing":        {func(i *networkingv1.Ingress) { i.Spec.Rules = nil }, []string{"spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"}},
		"any host":       {host(""), nil},
		"a wildcard":     {host("*.example.com"), nil},
		"a bad wildcard": {host("*example.com"), []string{`spec.rules[0].host: Invalid value: "*example.com": ` + wildcard}},
		"a bad host":     {host("Example"), []string{`spec.rules[0].host: Invalid value: "Example": ` + subdomain}},
		"an address":     {host("10.0.0.1"), []string{`spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`}},
		"no http":        {func(i *networkingv1.Ingress) { i.Spec.Rules[0].HTTP = nil }, nil},
		"no paths":       {func(i *networkingv1.Ingress) { i.Spec.Rules[0].HTTP.Paths = nil }, []string{"spec.rules[0].http.paths: Required value"}},
		"no path type": {path(func(p *networkingv1.HTTPIngressPath) { p.PathType = nil }),
			[]string{"spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"}},
		"a path type": {path(func(p *networkingv1.HTTPIngressPath) { p.PathType = new(networkingv1.PathType("Regex")) }),
			[]string{`spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific", "Prefix"`}},
		"no path": {path(func(p *networkingv1.HTTPIngressPath) { p.Path = "" }),
			[]string{`spec.rules[0].http.paths[0].path: Invalid value: "": must be an absolute path`}},
		"implementation-specific path": {path(func(p *networkingv1.HTTPIngressPath) {
			p.Path, p.PathType = "a//..", new(networkingv1.PathTypeImplementationSpecific)
		}), []string{`spec.rules[0].http.paths[0].path: Invalid value: "a//..": must be an absolute path`}},
		"implementation-specific, no path": {path(func(p *networkingv1.HTTPIngressPath) {
			p.Path, p.PathType = "", new(networkingv1.PathTypeImplementationSpecific)
		}), nil},
		"a path that changes": {path(func(p *networkingv1.HTTPIngressPath) { p.Path = "//a/../%2F/.." }), []string{
			`spec.rules[0].http.paths[0].path: Invalid value: "//a/../%2F/..": must not contain '//'`,
			`spec.rules[0].http.paths[0].path: Invalid value: "//a/../%2F/..": must not contain '/../'`,
			`spec.rules[0].http.paths[0].path: Invalid value: "//a/../%2F/..": must not contain '%2F'`,
			`spec.rules[0].http.paths[0].path: Invalid value: "//a/../%2F/..": cannot end with '/..'`}},
		"no backend": {backend(networkingv1.IngressBackend{}), []string{backendPath + `: Invalid value: "": resource or service backend is required`}},
		"two backends": {func(i *networkingv1.Ingress) {
			i.Spec.Rules[0].HTTP.Paths[0].Backend.Resource = &corev1.TypedLocalObjectReference{}
		}, []string{backendPath + `: Invalid value: "": cannot set both resource and service backends`}},
		"a resource": {backend(networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{APIGroup: new("a_b"), Kind: "a/b"}}), []string{
			backendPath + `.resource.apiGroup: Invalid value: "a_b": ` + subdomain,
			backendPath + `.resource.kind: Invalid value: "a/b": may not contain '/'`,
			backendPath + `.resource.name: Required value`}},
		"no service name and port": {serviceBackend("", "", 0), []string{
			backendPath + ".service.name: Required value",
			backendPath + ": Required value: port name or number is required"}},
		"a service's name":   {serviceBackend("A", "http", 0), []string{backendPath + `.service.name: Invalid value: "A": ` + label}},
		"two ports":          {serviceBackend("a", "http", 80), []string{backendPath + `: Invalid value: "": cannot set both port name & port number`}},
		"a port's number":    {serviceBackend("a", "", 70000), []string{backendPath + ".service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive"}},
		"a port's name":      {serviceBackend("a", "http-", 0), []string{backendPath + `.service.port.name: Invalid value: "http-": must not begin or end with a hyphen`}},
		"a default backend":  {func(i *networkingv1.Ingress) { i.Spec.DefaultBackend = &networkingv1.IngressBackend{} }, []string{`spec.defaultBackend: Invalid value: "": resource or service backend is required`}},
		"TLS":                {tls("cert", "*.example.com", "example.com"), nil},
		"TLS without secret": {tls(""), nil},
		"bad TLS": {tls("A", "A", "*A"), []string{
			`spec.tls[0].hosts[0]: Invalid value: "A": ` + subdomain,
			`spec.tls[0].hosts[1]: Invalid value: "*A": ` + wildcard,
			`spec.tls[0].secretName: Invalid value: "A": ` + subdomain}},
		"a class": {func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("A") }, []string{`spec.ingressClassName: Invalid value: "A": ` + subdomain}},
		"two classes": {func(i *networkingv1.Ingress) {
			i.Spec.IngressClassName, i.Annotations = new("a"), map[string]string{classAnnotation: "b"}
		}, []string{"annotations.kubernetes.io/ingress.class: Invalid value: \"b\": must match `ingressClassName` when both are specified"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), Ingress.Validate, web(test.edit)), test.want...)
		})
	}
}

// TestIngressUpdate checks that values that older versions accepted stay valid.
func TestIngressUpdate(t *testing.T) {
	badPath := path(func(p *networkingv1.HTTPIngressPath) { p.PathType = nil })
	old := web(tls("A"), host("*.example.com"), badPath)
	compare(t, checktest.UpdateErrors(t.Context(), Ingress.ValidateUpdate, web(tls("B"), host("*.example.net"), badPath), old))
	compare(t, checktest.UpdateErrors(t.Context(), Ingress.ValidateUpdate, web(badPath), old),
		"spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified")
	compare(t, checktest.UpdateErrors(t.Context(), Ingress.ValidateUpdate, web(tls("B")), web()), `spec.tls[0].secretName: Invalid value: "B": `+subdomain)
	classes := func(i *networkingv1.Ingress) {
		i.Spec.IngressClassName, i.Annotations = new("a"), map[string]string{classAnnotation: "b"}
	}
	compare(t, checktest.UpdateErrors(t.Context(), Ingress.ValidateUpdate, web(classes), web()))
}

func at(points ...networkingv1.IngressLoadBalancerIngress) func(*networkingv1.Ingress) {
	return func(i *networkingv1.Ingress) { i.Status.LoadBalancer.Ingress = points }
}

func TestIngressStatus(t *testing.T) {
	type point = networkingv1.IngressLoadBalancerIngress
	compare(t, checktest.UpdateErrors(t.Context(), Ingress.StatusUpdate.Validate, web(at(point{IP: "10.0.0.1"}, point{Hostname: "a.example.com"})), web()))
	compare(t, checktest.UpdateErrors(t.Context(), Ingress.StatusUpdate.Validate, web(at(point{IP: "10.0.0.01"}, point{Hostname: "10.0.0.1"}, point{Hostname: "A"})), web()),
		`status.loadBalancer.ingress[0].ip: Invalid value: "10.0.0.01": must not have leading 0s`,
		`status.loadBalancer.ingress[1].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`,
		`status.loadBalancer.ingress[2].hostname: Invalid value: "A": `+subdomain)
	stale := web(at(point{IP: "10.0.0.01"}))
	compare(t, checktest.UpdateErrors(t.Context(), Ingress.StatusUpdate.Validate, stale, stale))

	got := Ingress.StatusUpdate.Warnings(t.Context(), web(at(point{IP: "2001:DB8::1"})), web())
	if len(got) != 1 || !strings.HasPrefix(got[0], "status.loadBalancer.ingress[0]: ") {
		t.Errorf("warnings: %q", got)
	}
}

func TestIngressWarnings(t *testing.T) {
	annotated := web(func(i *networkingv1.Ingress) { i.Annotations = map[string]string{classAnnotation: "b"} })
	want := []string{`annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`}
	if diff := cmp.Diff(want, Ingress.Warnings(t.Context(), annotated, nil)); diff != "" {
		t.Error(diff)
	}
	if got := Ingress.Warnings(t.Context(), annotated, web()); got != nil {
		t.Errorf("on update: %q", got)
	}
	annotated.Spec.IngressClassName = new("b")
	if got := Ingress.Warnings(t.Context(), annotated, nil); got != nil {
		t.Errorf("with both: %q", got)
	}
}

func TestIngressColumns(t *testing.T) {
	rules := func(hosts ...string) func(*networkingv1.Ingress) {
		return func(i *networkingv1.Ingress) {
			i.Spec.Rules = nil
			for _, h := range hosts {
				i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: h})
			}
		}
	}
	type point = networkingv1.IngressLoadBalancerIngress
	for want, i := range map[string]*networkingv1.Ingress{
		"<none>|example.com||80": web(),
		"a|*||80, 443":           web(rules(""), tls(""), func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("a") }),
		"<none>|a,b,c + 2 more...|10.0.0.1,10.0.0.2|80": web(rules("a", "b", "c", "d", "e"), at(point{IP: "10.0.0.2"}, point{IP: "10.0.0.1"}, point{IP: "10.0.0.2"})),
		"<none>|a,b,c|lb|80":                            web(rules("a", "b", "c"), at(point{Hostname: "lb"})),
	} {
		var cells []string
		for _, column := range Ingress.Columns {
			cells = append(cells, column.Cell(i).(string))
		}
		if got := strings.Join(cells, "|"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestIngressClass(t *testing.T) {
	type parameters = networkingv1.IngressClassParametersReference
	class := func(controller string, p *parameters) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec:       networkingv1.IngressClassSpec{Controller: controller, Parameters: p},
		}
	}
	const good = "example.com/controller"
	namespaced, cluster := new(networkingv1.IngressClassParametersReferenceScopeNamespace), new(networkingv1.IngressClassParametersReferenceScopeCluster)
	for name, test := range map[string]struct {
		class *networkingv1.IngressClass
		want  []string
	}{
		"plain":                        {class(good, nil), nil},
		"no controller":                {class("", nil), []string{"spec.controller: Required value"}},
		"no path":                      {class("example.com", nil), []string{`spec.controller: Invalid value: "example.com": must be a domain-prefixed path (such as "acme.io/foo")`}},
		"a long one":                   {class("example.com/"+strings.Repeat("a", 250), nil), []string{"spec.controller: Too long: may not be more than 250 bytes"}},
		"cluster scope":                {class(good, &parameters{Kind: "Config", Name: "a", Scope: cluster}), nil},
		"namespace scope":              {class(good, &parameters{Kind: "Config", Name: "a", Scope: namespaced, Namespace: new("b")}), nil},
		"no scope":                     {class(good, &parameters{Kind: "Config", Name: "a"}), []string{"spec.parameters.scope: Required value"}},
		"another scope":                {class(good, &parameters{Kind: "Config", Name: "a", Scope: new("World")}), []string{`spec.parameters.scope: Unsupported value: "World": supported values: "Cluster", "Namespace"`}},
		"no namespace":                 {class(good, &parameters{Kind: "Config", Name: "a", Scope: namespaced}), []string{"spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"}},
		"a bad namespace":              {class(good, &parameters{Kind: "Config", Name: "a", Scope: namespaced, Namespace: new("A")}), []string{`spec.parameters.namespace: Invalid value: "A": ` + label}},
		"namespace with cluster scope": {class(good, &parameters{Kind: "Config", Name: "a", Scope: cluster, Namespace: new("b")}), []string{"spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"}},
		"names": {class(good, &parameters{APIGroup: new("a_b"), Kind: "a/b", Scope: cluster}), []string{
			`spec.parameters.apiGroup: Invalid value: "a_b": ` + subdomain,
			`spec.parameters.kind: Invalid value: "a/b": may not contain '/'`,
			"spec.parameters.name: Required value"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), IngressClass.Validate, test.class), test.want...)
		})
	}
	compare(t, checktest.UpdateErrors(t.Context(), IngressClass.ValidateUpdate, class(good+"s", nil), class(good, nil)),
		`spec.controller: Invalid value: "example.com/controllers": field is immutable`)

	c := class(good, &parameters{APIGroup: new("example.com"), Kind: "Config", Name: "a"})
	SetObjectDefaults_IngressClass(c)
	if *c.Spec.Parameters.Scope != "Cluster" {
		t.Errorf("scope %s", *c.Spec.Parameters.Scope)
	}
	if got := parametersText(c); got != "Config.example.com/a" {
		t.Error(got)
	}
	if got := IngressClass.Table.NameCell(c); got != "a" {
		t.Error(got)
	}
	c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	if got := IngressClass.Table.NameCell(c); got != "a (default)" {
		t.Error(got)
	}
}
