// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// newReviews returns an API that knows the tokens metrics, pods and broken, each of a user of that name
// who may get that subresource of the node n. The API cannot decide about broken.
func newReviews() *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		switch token := review.Spec.Token; token {
		case "metrics", "pods", "broken":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: token, Groups: []string{"g"}}}
		case "down":
			return true, nil, errors.New("the API is down")
		}
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		if review.Spec.User == "broken" {
			return true, nil, errors.New("the API is down")
		}
		want := authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: review.Spec.User, Name: "n"}
		review.Status.Allowed = *review.Spec.ResourceAttributes == want && review.Spec.Groups[0] == "g"
		return true, review, nil
	})
	return client
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
			if code, body := get(t, tc.client, f.server+"/healthz"); code != 200 || body != "ok" {
				t.Errorf("healthz: %d %q", code, body)
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
