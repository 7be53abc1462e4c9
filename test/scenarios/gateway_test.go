// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestGateway: an HTTPRoute reaches pods by header and weight, redirects, and is served with TLS, beside an Ingress at
// the same port. Statuses name what is wrong. Without its CRD a kind is not served, and with it again it is.
func TestGateway(t *testing.T) {
	httpPort, httpsPort, plain := unusedPort(t), unusedPort(t), unusedPort(t)
	s := newSession(t, ownClusterWithNode(t, "--ingress", "--ingress-address", "127.0.0.1",
		"--ingress-http-port", fmt.Sprint(httpPort), "--ingress-https-port", fmt.Sprint(httpsPort)))
	s.apply(backends)
	s.kubectl("wait", "--for=create", "gatewayclass/kindred", "--timeout=30s")
	s.kubectl("wait", "--for=condition=Accepted", "gatewayclass/kindred", "--timeout=30s")
	dir := t.TempDir()
	roots := selfSigned(t, dir, "a.example")
	s.kubectl("create", "secret", "tls", "cert", "--cert", filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key"))
	route := `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  hostnames: [a.example]
  rules:
  - backendRefs: [{name: who, port: 80, weight: 1}, {name: missing, port: 80, weight: 0}]
  - matches: [{path: {value: /moved}}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: b.example, statusCode: 301}}]
  - matches: [{path: {value: /}, headers: [{name: user-agent, type: RegularExpression, value: "Go-.*"}], method: GET, queryParams: [{name: broken, value: "1"}]}]
    backendRefs: [{name: missing, port: 80}]
`
	gateway := func(name string) string {
		return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s}
spec:
  gatewayClassName: kindred
  listeners:
  - {name: http, port: %d, protocol: HTTP}
  - {name: https, port: %d, protocol: HTTPS, hostname: a.example, tls: {certificateRefs: [{name: cert}]}}
`, name, plain, httpsPort)
	}
	s.apply(gateway("web"))
	s.apply(route)
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	answers := func(port int, url string, roots *x509.CertPool, status int, text string) *http.Response {
		t.Helper()
		var last *http.Response
		s.eventually(url, func() error {
			answer, body, err := throughProxy(port, url, roots)
			if err != nil {
				return err
			}
			if last = answer; answer.StatusCode != status || !strings.Contains(body, text) {
				return fmt.Errorf("%s %q, want %d %q", answer.Status, body, status, text)
			}
			return nil
		})
		return last
	}
	answers(plain, "http://a.example/", nil, 200, "who-")
	answers(httpsPort, "https://a.example/", roots, 200, "who-")
	answers(plain, "http://b.example/", nil, 404, "kindred: no rule for the host")
	answers(plain, "http://a.example/?broken=1", nil, 500, "Service "+s.namespace+"/missing does not exist")
	s.prints("BackendNotFound", "get", "httproute", "web", "-o", `jsonpath={.status.parents[0].conditions[?(@.type=="ResolvedRefs")].reason}`)
	s.prints("127.0.0.1 True 1", "get", "gateway", "web", "-o",
		`jsonpath={.status.addresses[*].value} {.status.conditions[?(@.type=="Programmed")].status} {.status.listeners[0].attachedRoutes}`)

	s.apply(gateway("web-second"))
	s.eventually("a second Gateway with the same listeners is refused", func() error {
		got := s.jsonpath(`{.status.conditions[?(@.type=="Accepted")].status} {.status.listeners[*].conditions[?(@.type=="Conflicted")].reason}`, "gateway", "web-second")
		if want := "False HostnameConflict HostnameConflict"; got != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})

	s.kubectl("delete", "crd", "httproutes.gateway.networking.k8s.io", "--timeout=30s")
	answers(plain, "http://a.example/", nil, 404, "kindred: no rule")
	s.cluster.kill(t)
	s.cluster.again(t) // creates the CRD
	s.kubectl("wait", "--for=create", "crd/httproutes.gateway.networking.k8s.io", "--timeout=30s")
	s.kubectl("wait", "--for=condition=Established", "crd/httproutes.gateway.networking.k8s.io", "--timeout=30s")
	s.apply(route)
	answers(plain, "http://a.example/", nil, 200, "who-")
	s.kubectl("delete", "gateway", "web")
	s.eventually("the second Gateway takes its place", func() error {
		if got := s.jsonpath(`{.status.conditions[?(@.type=="Programmed")].status}`, "gateway", "web-second"); got != "True" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}
