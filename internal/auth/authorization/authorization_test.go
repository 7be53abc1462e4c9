// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	return write(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"users":[{"name":"x","user":{}}]}`, server))
}

// allows is an authorizer that allows one user everything, and records that it was called.
type allows struct {
	name  string
	asked *[]string
}

func (a allows) Authorize(_ context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	*a.asked = append(*a.asked, a.name)
	if request.GetUser().GetName() == a.name {
		return authorizer.DecisionAllow, a.name, nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (a allows) ConditionsAwareAuthorize(ctx context.Context, request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, request))
}

func (allows) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

func (allows) RulesFor(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return nil, nil, false, nil
}

// service is a webhook that allows one user, denies another, and has no opinion on others.
type service struct {
	mu    sync.Mutex
	asked []string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, review.Spec.User)
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: review.Spec.User == "guest", Denied: review.Spec.User == "intruder", Reason: "by the webhook"}
	_ = json.NewEncoder(w).Encode(review)
}

// takeCalls returns the users for whom the webhook was called since the last call.
func (s *service) takeCalls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func chainOf(t *testing.T, o Options) (*Chain, *[]string) {
	t.Helper()
	config, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	chain, err := config.Chain(t.Context(), allows{"node", &asked}, allows{"rbac", &asked})
	if err != nil {
		t.Fatal(err)
	}
	return chain, &asked
}

func request(name string, groups ...string) authorizer.Attributes {
	return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name, Groups: groups}, Verb: "get", Resource: "pods", ResourceRequest: true, Namespace: "default", APIVersion: "v1"}
}

func TestOrder(t *testing.T) {
	s := &service{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	plain := Options{}
	webhook := Options{WebhookConfigFile: kubeconfig(t, server.URL)}
	first := Options{ConfigFile: write(t, fileWith(kubeconfig(t, server.URL), "Deny", "")+nodeAndRBAC)}
	for _, tt := range []struct {
		name    string
		options Options
		who     authorizer.Attributes
		want    authorizer.Decision
		asked   []string
		webhook int
	}{
		{"user without a role", plain, request("jane"), authorizer.DecisionNoOpinion, []string{"node", "rbac"}, 0},
		{"a node", plain, request("node"), authorizer.DecisionAllow, []string{"node"}, 0},
		{"administrator", plain, request("root", user.SystemPrivilegedGroup), authorizer.DecisionAllow, nil, 0},
		{"webhook last, user with a role", webhook, request("rbac"), authorizer.DecisionAllow, []string{"node", "rbac"}, 0},
		{"webhook last, allowed by it", webhook, request("guest"), authorizer.DecisionAllow, []string{"node", "rbac"}, 1},
		{"webhook last, denied by it", webhook, request("intruder"), authorizer.DecisionDeny, []string{"node", "rbac"}, 1},
		{"webhook last, no opinion", webhook, request("jane"), authorizer.DecisionNoOpinion, []string{"node", "rbac"}, 1},
		{"webhook first", first, request("intruder"), authorizer.DecisionDeny, nil, 1},
		{"webhook first, without opinion", first, request("rbac"), authorizer.DecisionAllow, []string{"node", "rbac"}, 1},
		{"webhook first, administrator", first, request("root", user.SystemPrivilegedGroup), authorizer.DecisionAllow, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			chain, asked := chainOf(t, tt.options)
			got, reason, err := chain.Authorize(t.Context(), tt.who)
			if err != nil || got != tt.want {
				t.Errorf("got %v (%s), %v; want %v", got, reason, err, tt.want)
			}
			if diff := cmp.Diff(tt.asked, *asked); diff != "" {
				t.Error(diff)
			}
			if _, _, err := chain.Authorize(t.Context(), tt.who); err != nil {
				t.Error(err)
			}
			if calls := s.takeCalls(); len(calls) != tt.webhook {
				t.Errorf("the webhook was called for %v, want %d times: its responses are cached", calls, tt.webhook)
			}
		})
	}
}

// If a webhook is unavailable, its configuration decides between Deny and NoOpinion.
func TestWebhookUnavailable(t *testing.T) {
	unavailable := kubeconfig(t, "http://127.0.0.1:1")
	chain, _ := chainOf(t, Options{ConfigFile: write(t, fileWith(unavailable, "Deny", "")+nodeAndRBAC)})
	if got, _, err := chain.Authorize(t.Context(), request("rbac")); got != authorizer.DecisionDeny || err == nil {
		t.Errorf("failurePolicy Deny: %v, %v", got, err)
	}
	chain, _ = chainOf(t, Options{WebhookConfigFile: unavailable})
	if got, _, err := chain.Authorize(t.Context(), request("jane")); got != authorizer.DecisionNoOpinion || err == nil {
		t.Errorf("by flags: %v, %v", got, err)
	}
}

// A negative TTL disables the cache.
func TestNoCache(t *testing.T) {
	s := &service{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	chain, _ := chainOf(t, Options{WebhookConfigFile: kubeconfig(t, server.URL), WebhookAuthorizedTTL: -1, WebhookUnauthorizedTTL: -1})
	for range 2 {
		for _, who := range []string{"guest", "intruder"} {
			if _, _, err := chain.Authorize(t.Context(), request(who)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{"guest", "intruder", "guest", "intruder"}, s.takeCalls()); diff != "" {
		t.Error(diff)
	}
}

const (
	header      = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	nodeAndRBAC = "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n"
)

// fileWith returns the beginning of a configuration, with a webhook.
func fileWith(kubeconfig, onFailure, conditions string) string {
	return header + fmt.Sprintf("- {type: Webhook, name: house, webhook: {timeout: 1s, authorizedTTL: 1m, unauthorizedTTL: 1m, subjectAccessReviewVersion: v1, failurePolicy: %s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}%s}}\n",
		onFailure, kubeconfig, conditions)
}

func TestReload(t *testing.T) {
	s := &service{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := kubeconfig(t, server.URL)
	file := write(t, header+nodeAndRBAC)
	chain, _ := chainOf(t, Options{ConfigFile: file})
	replace := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	becomes := func(what string, want authorizer.Decision) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			got, _, err := chain.Authorize(t.Context(), request("guest"))
			if err == nil && got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v, %v", what, got, err)
			}
		}
	}
	becomes("no webhook", authorizer.DecisionNoOpinion)
	replace(header + nodeAndRBAC + strings.TrimPrefix(fileWith(config, "NoOpinion", ", matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{expression: \"request.user == 'guest'\"}]"), header))
	becomes("a webhook", authorizer.DecisionAllow)
	replace(header + "- {type: RBAC, name: rbac}\n")
	replace(header + nodeAndRBAC + "- {type: AlwaysDeny, name: alwaysdeny}\n")
	becomes("no webhook again", authorizer.DecisionNoOpinion)
}

func TestInvalidOptions(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, tt := range map[string]struct {
		options Options
		want    string
	}{
		"missing webhook configuration": {Options{WebhookConfigFile: missing}, "--authorization-webhook-config-file " + missing},
		"an unknown version":            {Options{WebhookVersion: "v2"}, `--authorization-webhook-version: "v2" is neither v1 nor v1beta1`},
		"file and flags":                {Options{ConfigFile: missing, WebhookConfigFile: missing}, "--authorization-config and the --authorization-webhook flags exclude each other"},
		"file and TTL flag":             {Options{ConfigFile: missing, WebhookAuthorizedTTL: 1}, "exclude each other"},
		"missing file":                  {Options{ConfigFile: missing}, "--authorization-config: open " + missing},
		"not YAML of the kind":          {Options{ConfigFile: write(t, "nonsense")}, "--authorization-config "},
		"an empty file":                 {Options{ConfigFile: write(t, "")}, "authorizers: Required value"},
		"ABAC":                          {Options{ConfigFile: write(t, header+nodeAndRBAC+"- {type: ABAC, name: abac}\n")}, `Unsupported value: "ABAC"`},
		"no RBAC":                       {Options{ConfigFile: write(t, header+"- {type: Node, name: node}\n")}, "authorizer RBAC is missing"},
		"no Node":                       {Options{ConfigFile: write(t, header+"- {type: RBAC, name: rbac}\n")}, "authorizer Node is missing"},
		"another name of RBAC":          {Options{ConfigFile: write(t, header+"- {type: RBAC, name: roles}\n")}, `authorizer RBAC must be named "rbac", not "roles"`},
		"RBAC twice":                    {Options{ConfigFile: write(t, header+nodeAndRBAC+"- {type: RBAC, name: again}\n")}, "Duplicate value"},
		"invalid expression":            {Options{ConfigFile: write(t, fileWith(kubeconfig(t, "http://x"), "Deny", ", matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{expression: \"1 +\"}]")+nodeAndRBAC)}, "matchConditions[0].expression"},
		"in-cluster webhook":            {Options{ConfigFile: write(t, strings.Replace(fileWith("x", "Deny", ""), "type: KubeConfigFile, kubeConfigFile: \"x\"", "type: InClusterConfig", 1)+nodeAndRBAC)}, "authorizer house: only a server in a pod has an InClusterConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(tt.options)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want ...%s...", err, tt.want)
			}
		})
	}
}
