// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"
)

func TestBodiesThatAreRefused(t *testing.T) {
	namespace := server.namespace(t)
	path := "/api/v1/namespaces/" + namespace + "/configmaps"
	const depth = 10_000
	nested := func(open, close string) string { return strings.Repeat(open, depth) + strings.Repeat(close, depth) }
	for _, test := range []struct {
		name, contentType, body string
		code                    int
	}{
		{"not JSON", "application/json", `{"kind":`, http.StatusBadRequest},
		{"not JSON at all", "application/json", "\x00\xff", http.StatusBadRequest},
		{"empty", "application/json", "", http.StatusBadRequest},
		{"no name; the kind is that of the URL", "application/json", `{}`, http.StatusUnprocessableEntity},
		{"another kind", "application/json", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, http.StatusBadRequest},
		{"an unknown kind", "application/json", `{"apiVersion":"v9","kind":"Nope"}`, http.StatusBadRequest},
		{"a list", "application/json", `[]`, http.StatusBadRequest},
		{"not YAML", "application/yaml", "a: b: c:\n\t- x", http.StatusBadRequest},
		{"not protobuf", "application/vnd.kubernetes.protobuf", "k8s\x00garbage", http.StatusBadRequest},
		{"protobuf without its prefix", "application/vnd.kubernetes.protobuf", "garbage", http.StatusBadRequest},
		{"unknown type", "application/x-tar", "x", http.StatusUnsupportedMediaType},
		{"deep JSON objects", "application/json", `{"kind":"ConfigMap","apiVersion":"v1","data":` + strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth) + "}", http.StatusBadRequest},
		{"deep JSON lists", "application/json", `{"kind":"ConfigMap","apiVersion":"v1","data":` + nested("[", "]") + "}", http.StatusBadRequest},
		{"deep YAML", "application/yaml", "kind: ConfigMap\napiVersion: v1\ndata: " + nested("[", "]"), http.StatusBadRequest},
		{"YAML bomb", "application/yaml", yamlBomb, http.StatusBadRequest},
		{"too large", "application/json", `{"data":"` + strings.Repeat("x", 3<<20) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		got := server.do(t, server.admin, http.MethodPost, path, test.body, "Content-Type", test.contentType)
		if got.code != test.code {
			t.Errorf("%s: %d %.300q, want %d", test.name, got.code, got.body, test.code)
			continue
		}
		if status := got.status(t); status.Status != "Failure" || status.Message == "" || int(status.Code) != test.code {
			t.Errorf("%s: %+v", test.name, status)
		}
	}
	for _, contentType := range []string{"application/json", "application/merge-patch+json", "text/plain"} {
		got := server.do(t, server.admin, http.MethodPatch, path+"/a", "{}", "Content-Type", contentType)
		want := http.StatusUnsupportedMediaType
		if strings.Contains(contentType, "patch") {
			want = http.StatusNotFound
		}
		if got.code != want {
			t.Errorf("PATCH as %s: %d %.200q, want %d", contentType, got.code, got.body, want)
		}
	}
}

const yamlBomb = `apiVersion: v1
kind: ConfigMap
a: &a ["x","x","x","x","x","x","x","x","x"]
b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]
c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]
d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]
e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]
f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]
g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]
`

func TestAnonymousSeesHealthAndVersionAlone(t *testing.T) {
	client := server.anonymous(t)
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/version"} {
		if got := server.do(t, client, http.MethodGet, path, ""); got.code != http.StatusOK {
			t.Errorf("GET %s: %d %q", path, got.code, got.body)
		}
	}
	for _, path := range []string{
		"/", "/api", "/apis", "/api/v1", "/api/v1/namespaces", "/openapi/v2", "/openapi/v3", "/metrics", "/debug/pprof/", "/logs",
		"/readyz/etcd", "/livez/ping", "/version/x", "/.well-known/openid-configuration", "/openid/v1/jwks",
		"/apis/authentication.k8s.io/v1/selfsubjectreviews", "/nothing",
	} {
		got := server.do(t, client, http.MethodGet, path, "")
		if got.code != http.StatusUnauthorized || got.status(t).Reason != "Unauthorized" {
			t.Errorf("GET %s: %d %.100q, want 401", path, got.code, got.body)
		}
	}
	if got := server.do(t, client, http.MethodGet, "/api/v1/namespaces", "", "Authorization", "Bearer bogus"); got.code != http.StatusUnauthorized {
		t.Errorf("a bogus token: %d", got.code)
	}
	for _, header := range []string{"X-Remote-User", "Impersonate-User"} {
		if got := server.do(t, client, http.MethodGet, "/api/v1/namespaces", "", header, "system:admin", "X-Remote-Group", "system:masters"); got.code != http.StatusUnauthorized {
			t.Errorf("anonymous request with %s: %d", header, got.code)
		}
	}
}

func TestNotFoundAndNotAllowed(t *testing.T) {
	for path, method := range map[string]string{
		"/api/v1/nothings": http.MethodGet, "/apis/nothing.example.com/v1": http.MethodGet, "/api/v1/namespaces/default/pods/none": http.MethodGet,
	} {
		if got := server.do(t, server.admin, method, path, ""); got.code != http.StatusNotFound {
			t.Errorf("%s %s: %d", method, path, got.code)
		}
	}
	if got := server.do(t, server.admin, http.MethodDelete, "/api/v1/namespaces", ""); got.code != http.StatusMethodNotAllowed {
		t.Errorf("deletion of all namespaces: %d %.200q", got.code, got.body)
	}
}
