// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/auth/authentication"
	"github.com/kindred-project/kindred/internal/auth/authentication/testissuer"
	"github.com/kindred-project/kindred/internal/auth/authorization"
)

// house is an external service that authenticates tokens and authorizes requests.
type house struct {
	kubeconfig string

	mu    sync.Mutex
	asked []string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	mux := http.NewServeMux()
	mux.HandleFunc("/authenticate", h.authenticate)
	mux.HandleFunc("/authorize", h.authorize)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, what := range []string{"authenticate", "authorize"} {
		content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":"%s/%s"}}],"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"users":[{"name":"x","user":{}}]}`, server.URL, what)
		if err := os.WriteFile(h.kubeconfig+"."+what, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *house) authenticate(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if name, ours := strings.CutPrefix(review.Spec.Token, "house-"); ours {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences,
			User: authenticationv1.UserInfo{Username: name, UID: "42", Groups: []string{"guests"}, Extra: map[string]authenticationv1.ExtraValue{"house.example/room": {"7"}}}}
	}
	_ = json.NewEncoder(w).Encode(review)
}

// authorize lets guests read config maps, and denies intruders everything.
func (h *house) authorize(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, review.Spec.User)
	wanted := review.Spec.ResourceAttributes
	review.Status.Allowed = wanted != nil && wanted.Resource == "configmaps" && wanted.Verb == "list" && slices.Contains(review.Spec.Groups, "guests")
	if review.Spec.User == "intruder" {
		review.Status = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "not in this house"}
	}
	_ = json.NewEncoder(w).Encode(review)
}

func (h *house) wasAsked(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.asked, name)
}

// whoami returns the user that the server authenticates by a token.
func (s *testServer) whoami(t *testing.T, token string) (authenticationv1.UserInfo, answer) {
	t.Helper()
	got := s.do(t, s.anonymous(t), http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, "Authorization", "Bearer "+token)
	var review authenticationv1.SelfSubjectReview
	if got.code == http.StatusCreated {
		if err := json.Unmarshal([]byte(got.body), &review); err != nil {
			t.Fatal(err)
		}
	}
	return review.Status.UserInfo, got
}

// get returns the response to a GET with a token.
func (s *testServer) get(t *testing.T, path, token string) answer {
	t.Helper()
	return s.do(t, s.anonymous(t), http.MethodGet, path, "", "Authorization", "Bearer "+token)
}

// outsiders is a server with an OIDC issuer and a house, configured by upstream's flags.
func outsiders(t *testing.T, issuer *testissuer.Issuer, h *house) *testServer {
	t.Helper()
	who, err := authentication.Load(authentication.Options{
		OIDCIssuerURL: issuer.URL, OIDCClientID: "kindred", OIDCCAFile: issuer.CAFile, OIDCUsernamePrefix: "oidc:", OIDCGroupsClaim: "groups",
		OIDCRequiredClaims: map[string]string{"tenant": "a"}, WebhookConfigFile: h.kubeconfig + ".authenticate",
	})
	if err != nil {
		t.Fatal(err)
	}
	what, err := authorization.Load(authorization.Options{WebhookConfigFile: h.kubeconfig + ".authorize"})
	if err != nil {
		t.Fatal(err)
	}
	return own(t, func(c *Config) { c.Authentication, c.Authorization = who, what })
}

// TestOutsiders: an issuer and a webhook authenticate users, and a webhook authorizes requests that
// no other authorizer allows.
func TestOutsiders(t *testing.T) {
	issuer, h := testissuer.New(t), newHouse(t)
	s := outsiders(t, issuer, h)
	claims := map[string]any{"sub": "jane", "aud": "kindred", "tenant": "a", "groups": []string{"guests"}, "exp": time.Now().Add(time.Hour).Unix()}
	jane := issuer.Sign(t, claims)

	t.Run("issuer", func(t *testing.T) {
		err := within(15*time.Second, func() error {
			if info, got := s.whoami(t, jane); info.Username != "oidc:jane" || !slices.Equal(info.Groups, []string{"guests", "system:authenticated"}) {
				return fmt.Errorf("%d, %+v", got.code, info)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		claims["tenant"] = "b"
		if _, got := s.whoami(t, issuer.Sign(t, claims)); got.code != http.StatusUnauthorized {
			t.Errorf("a token without the required claim: %d", got.code)
		}
	})
	t.Run("webhook that authenticates", func(t *testing.T) {
		info, got := s.whoami(t, "house-joe")
		if info.Username != "joe" || info.UID != "42" || !slices.Equal(info.Extra["house.example/room"], []string{"7"}) {
			t.Errorf("%d, %+v", got.code, info)
		}
		if _, got := s.whoami(t, "joe"); got.code != http.StatusUnauthorized {
			t.Errorf("an unknown token: %d", got.code)
		}
	})
	t.Run("webhook that authorizes", func(t *testing.T) {
		for _, tt := range []struct {
			name, token, path string
			want              int
		}{
			{"the webhook allows", jane, "/api/v1/namespaces/default/configmaps", http.StatusOK},
			{"no authorizer allows", jane, "/api/v1/namespaces/default/secrets", http.StatusForbidden},
			{"the webhook denies", "house-intruder", "/api/v1/namespaces/default/configmaps", http.StatusForbidden},
			{"RBAC allows before the webhook is called", "house-intruder", "/apis", http.StatusOK},
		} {
			if got := s.get(t, tt.path, tt.token); got.code != tt.want {
				t.Errorf("%s: %d %s", tt.name, got.code, got.body)
			}
		}
		if got := s.get(t, "/api/v1/namespaces/default/configmaps", "house-intruder"); !strings.HasSuffix(got.status(t).Message, ": not in this house") {
			t.Errorf("the reason is missing: %s", got.body)
		}
		s.do(t, s.admin, http.MethodGet, "/api/v1/secrets", "")
		if h.wasAsked("kubernetes-admin") || !h.wasAsked("oidc:jane") {
			t.Errorf("the webhook was called for %v", h.asked)
		}
	})
	t.Run("SelfSubjectAccessReview", func(t *testing.T) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps", Namespace: "default"}}}
		got, err := s.as(t, "somebody", "guests").AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil || !got.Status.Allowed {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestBootstrapToken: a Secret in kube-system authenticates a new machine.
func TestBootstrapToken(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:racks",
		},
	}
	const token = "abcdef.0123456789abcdef"
	if _, got := server.whoami(t, token); got.code != http.StatusUnauthorized {
		t.Fatalf("before the token exists: %d", got.code)
	}
	if _, err := server.client(t).CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := within(5*time.Second, func() error {
		info, got := server.whoami(t, token)
		if info.Username != "system:bootstrap:abcdef" || !slices.Equal(info.Groups, []string{"system:bootstrappers", "system:bootstrappers:racks", "system:authenticated"}) {
			return fmt.Errorf("%d, %+v", got.code, info)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, got := server.whoami(t, "abcdef.0123456789abcdeg"); got.code != http.StatusUnauthorized {
		t.Errorf("a wrong token secret: %d", got.code)
	}
}

// TestAnonymousByConfiguration: the configuration of anonymous authentication replaces the four
// public paths.
func TestAnonymousByConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true, conditions: [{path: /livez}]}\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	who, err := authentication.Load(authentication.Options{ConfigFile: file})
	if err != nil {
		t.Fatal(err)
	}
	s := own(t, func(c *Config) { c.Authentication = who })
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusUnauthorized, "/version": http.StatusUnauthorized} {
		if got := s.do(t, s.anonymous(t), http.MethodGet, path, ""); got.code != want {
			t.Errorf("%s: %d, want %d", path, got.code, want)
		}
	}
}
