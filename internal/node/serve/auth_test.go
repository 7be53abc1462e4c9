// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kindred-project/kindred/internal/node/config"
)

// reviews is an API that knows the tokens of some subresources and broken, each of a user of that name who may get that
// subresource of the node n. It does not review the token down, nor decide about broken.
type reviews struct {
	kubernetes.Interface
	mu    sync.Mutex
	asked map[string]int
}

func newReviews(t *testing.T) *reviews {
	t.Helper()
	r := &reviews{asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, request *http.Request) {
		review := received[authenticationv1.TokenReview](r, request, "tokens")
		switch token := review.Spec.Token; token {
		case "metrics", "pods", "stats", "log", "healthz", "configz", "proxy", "broken":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: token, Groups: []string{"g"}}}
		case "down":
			fail(w, http.StatusBadRequest, "the API is down")
			return
		}
		writeJSON(w, review)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, request *http.Request) {
		review := received[authorizationv1.SubjectAccessReview](r, request, "accesses")
		if review.Spec.User == "broken" {
			fail(w, http.StatusBadRequest, "the API is down")
			return
		}
		want := authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: review.Spec.User, Name: "n"}
		review.Status.Allowed = *review.Spec.ResourceAttributes == want && review.Spec.Groups[0] == "g"
		writeJSON(w, review)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.Interface = kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
	return r
}

func received[T any](r *reviews, request *http.Request, what string) *T {
	r.mu.Lock()
	r.asked[what]++
	r.mu.Unlock()
	review := new(T)
	body, err := io.ReadAll(request.Body)
	if err == nil {
		err = runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, any(review).(runtime.Object))
	}
	if err != nil {
		panic(err)
	}
	return review
}

func TestCertificates(t *testing.T) {
	f := newFixture(t)
	client := func(certificates ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.ca.pool(), Certificates: certificates}}}
	}
	clientAuth := x509.ExtKeyUsageClientAuth
	for _, tc := range []struct {
		name   string
		client *http.Client
		code   int
		body   string
	}{
		{"no certificate", client(), 401, "Unauthorized"},
		{"certificate of another CA", client(newAuthority(t).issue(t, pkix.Name{CommonName: "apiserver"}, clientAuth)), 401, "Unauthorized"},
		{"server certificate", client(f.ca.issue(t, pkix.Name{CommonName: "apiserver"}, x509.ExtKeyUsageServerAuth)), 401, "Unauthorized"},
		{"other user", client(f.ca.issue(t, pkix.Name{CommonName: "bob", Organization: []string{"devs"}}, clientAuth)), 403,
			"Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[pods proxy])"},
		{"the API server", client(f.ca.issue(t, pkix.Name{CommonName: "apiserver"}, clientAuth)), 200, ""},
		{"member of system:masters", client(f.ca.issue(t, pkix.Name{CommonName: "root", Organization: []string{"system:masters"}}, clientAuth)), 200, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, body := get(t, tc.client, f.server+"/pods")
			if code != tc.code || (tc.body != "" && body != tc.body) {
				t.Errorf("got %d %q", code, body)
			}
		})
	}
}

// TestTokens: tokens are reviewed by the API, and their users may do what the API allows.
func TestTokens(t *testing.T) {
	f := newFixture(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.ca.pool()}}}
	for _, tc := range []struct {
		token, path string
		code        int
		body        string
	}{
		{"metrics", "/metrics/resource", 200, "node_memory_working_set_bytes 1 1000"},
		{"pods", "/pods", 200, "PodList"},
		{"pods", "/metrics/resource", 403, "Forbidden (user=pods, verb=get, resource=nodes, subresource(s)=[metrics])"},
		{"metrics", "/pods", 403, "Forbidden (user=metrics, verb=get, resource=nodes, subresource(s)=[pods proxy])"},
		{"metrics", "/containerLogs/ns/p/c", 403, "Forbidden (user=metrics, verb=get, resource=nodes, subresource(s)=[proxy])"},
		{"metrics", "/metrics", 200, "metrics"},
		{"metrics", "/metrics/cadvisor", 200, "containers"},
		{"metrics", "/metrics/probes", 200, "probes"},
		{"metrics", "/stats/summary", 403, "subresource(s)=[stats]"},
		{"stats", "/stats/summary", 200, `"nodeName":"n false"`},
		{"stats", "/stats/summary?only_cpu_and_memory=true", 200, `"nodeName":"n true"`},
		{"stats", "/stats/summary?only_cpu_and_memory=maybe", 400, "must be true or false"},
		{"log", "/logs/", 200, ""},
		{"pods", "/runningpods/", 200, `"nodeName":"running"`},
		{"healthz", "/healthz", 200, "ok"},
		{"healthz", "/healthz?verbose", 200, "[+]ping ok"},
		{"healthz", "/healthz/ping", 200, "ok"},
		{"configz", "/configz", 200, `{"kubeletconfig":{`},
		{"healthz", "/configz", 403, "subresource(s)=[configz proxy]"},
		{"proxy", "/configz", 200, `"port":10250`},
		{"proxy", "/healthz", 200, "ok"},
		{"proxy", "/pods", 200, "PodList"},
		{"proxy", "/debug/pprof/cmdline", 200, ""},
		{"proxy", "/metrics", 403, "subresource(s)=[metrics]"},
		{"proxy", "/nothing", 404, ""},
		{"unknown", "/metrics/resource", 401, "Unauthorized"},
		{"down", "/metrics/resource", 401, "Unauthorized"},
		{"broken", "/metrics/resource", 500, "Authorization error (user=broken, verb=get, resource=nodes, subresource(s)=[metrics])"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", f.server+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+tc.token)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != tc.code || !strings.Contains(string(body), tc.body) {
			t.Errorf("token %s, %s: got %d %q, %v", tc.token, tc.path, response.StatusCode, body, err)
		}
	}
}

func tokenRequest(t *testing.T, f *fixture, method, path, token string) (int, string) {
	t.Helper()
	request := httptest.NewRequest(method, path, nil)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, request)
	return w.Code, w.Body.String()
}

// TestDecisionsAreCached: the API is asked once about a token and once about an access.
func TestDecisionsAreCached(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		if code, body := tokenRequest(t, f, "GET", "/metrics", "metrics"); code != 200 {
			t.Fatalf("got %d %s", code, body)
		}
	}
	if asked := f.reviews.asked; asked["tokens"] != 1 || asked["accesses"] != 1 {
		t.Errorf("the API was asked %v, want one of each", asked)
	}
}

// TestModes: the settings of authentication and authorization decide.
func TestModes(t *testing.T) {
	anonymous := func(c *config.Configuration) { c.Authentication.Anonymous.Enabled = new(true) }
	noTokens := func(c *config.Configuration) { c.Authentication.Webhook.Enabled = new(false) }
	allowAll := func(c *config.Configuration) {
		c.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
	}
	for _, tc := range []struct {
		name      string
		configure []func(*config.Configuration)
		token     string
		code      int
		body      string
	}{
		{"anonymous is off", nil, "", 401, "Unauthorized"},
		{"anonymous is a user", []func(*config.Configuration){anonymous}, "", 403, "user=system:anonymous"},
		{"a bad token is not anonymous", []func(*config.Configuration){anonymous}, "down", 401, "Unauthorized"},
		{"tokens are off", []func(*config.Configuration){noTokens}, "metrics", 401, "Unauthorized"},
		{"everything is allowed", []func(*config.Configuration){anonymous, allowAll}, "", 200, "metrics"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, tc.configure...)
			if code, body := tokenRequest(t, f, "GET", "/metrics", tc.token); code != tc.code || !strings.Contains(body, tc.body) {
				t.Errorf("got %d %q", code, body)
			}
		})
	}
}

// TestDisabled: the settings of handlers decide which are served.
func TestDisabled(t *testing.T) {
	off := new(false)
	for _, tc := range []struct {
		path, body string
		configure  func(*config.Configuration)
	}{
		{"/logs/", "logs endpoint is disabled.", func(c *config.Configuration) { c.EnableSystemLogHandler = off }},
		{"/debug/pprof/", "profiling endpoint is disabled.", func(c *config.Configuration) { c.EnableProfilingHandler = off }},
		{"/debug/flags/v", "flags endpoint is disabled.", func(c *config.Configuration) { c.EnableDebugFlagsHandler = off }},
		{"/containerLogs/ns/p/c", "Debug endpoints are disabled.", func(c *config.Configuration) { c.EnableDebuggingHandlers = off }},
		{"/logs/", "Debug endpoints are disabled.", func(c *config.Configuration) { c.EnableDebuggingHandlers = off }},
	} {
		allow := func(c *config.Configuration) {
			c.Authentication.Anonymous.Enabled = new(true)
			c.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
		}
		f := newFixture(t, allow, tc.configure)
		if code, body := tokenRequest(t, f, "GET", tc.path, ""); code != 405 || body != tc.body {
			t.Errorf("%s: %d %q", tc.path, code, body)
		}
	}
}

// TestOtherPorts: the port without authentication only reports, and that of health has only that.
func TestOtherPorts(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]int{
		"/healthz": 200, "/pods": 200, "/metrics": 200, "/metrics/resource": 200, "/stats/summary": 200,
		"/configz": 404, "/logs/": 404, "/containerLogs/ns/p/c": 404, "/runningpods/": 404, "/debug/pprof/": 404,
	} {
		w := httptest.NewRecorder()
		f.handler.ReadOnly().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("readOnlyPort %s: %d, want %d", path, w.Code, want)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/healthz/ping": 200, "/pods": 404} {
		w := httptest.NewRecorder()
		f.handler.Health().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("healthzPort %s: %d, want %d", path, w.Code, want)
		}
	}
}
