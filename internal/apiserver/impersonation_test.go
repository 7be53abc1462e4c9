// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// acting returns a client that impersonates a user.
func acting(t *testing.T, who string, as rest.ImpersonationConfig) kubernetes.Interface {
	t.Helper()
	config := server.Config(&user.DefaultInfo{Name: who, Groups: []string{user.AllAuthenticated}})
	config.Impersonate = as
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func rule(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

// TestImpersonation: a user may impersonate only the permitted users.
func TestImpersonation(t *testing.T) {
	grant(t, "deputy", rule("list", "", "pods"),
		rule("impersonate", "", "users", "jane"), rule("impersonate", "", "groups", "developers"), rule("impersonate", "", "serviceaccounts", "robot"),
		rule("impersonate", "authentication.k8s.io", "userextras/room", "7"), rule("impersonate", "authentication.k8s.io", "uids", "42"))
	// Which kind of impersonation k8s.io/apiserver names depends on its recent decisions.
	const cannot = `User "deputy" cannot impersonate`
	for name, tt := range map[string]struct {
		as     rest.ImpersonationConfig
		want   string // the resulting user
		denied string // or the error
	}{
		"a user":          {rest.ImpersonationConfig{UserName: "jane"}, "jane", ""},
		"with a group":    {rest.ImpersonationConfig{UserName: "jane", Groups: []string{"developers"}}, "jane", ""},
		"with UID":        {rest.ImpersonationConfig{UserName: "jane", UID: "42", Extra: map[string][]string{"room": {"7"}}}, "jane", ""},
		"service account": {rest.ImpersonationConfig{UserName: "system:serviceaccount:default:robot"}, "system:serviceaccount:default:robot", ""},
		"another user":    {rest.ImpersonationConfig{UserName: "root"}, "", cannot},
		"masters":         {rest.ImpersonationConfig{UserName: "jane", Groups: []string{user.SystemPrivilegedGroup}}, "", cannot},
		"another UID":     {rest.ImpersonationConfig{UserName: "jane", UID: "43"}, "", cannot},
		"another extra":   {rest.ImpersonationConfig{UserName: "jane", Extra: map[string][]string{"room": {"8"}}}, "", cannot},
		"another account": {rest.ImpersonationConfig{UserName: "system:serviceaccount:default:default"}, "", cannot},
		"a group alone":   {rest.ImpersonationConfig{Groups: []string{"developers"}}, "", "without impersonating a user"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := acting(t, "deputy", tt.as).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			switch {
			case tt.denied != "" && (err == nil || !strings.Contains(err.Error(), tt.denied)):
				t.Errorf("%v, want ...%s...", err, tt.denied)
			case tt.denied == "" && (err != nil || got.Status.UserInfo.Username != tt.want):
				t.Errorf("%v, %v; want %s", got, err, tt.want)
			}
		})
	}
}

// TestConstrainedImpersonation (KEP-5284, on by default): a user who may impersonate another for
// some requests may not do so for others, whatever the other user may do.
func TestConstrainedImpersonation(t *testing.T) {
	namespace := server.namespace(t)
	grant(t, "principal", rule("list", "", "configmaps"), rule("list", "", "secrets"))
	grant(t, "agent", rule("list", "", "pods"),
		rule("impersonate:user-info", "authentication.k8s.io", "users", "principal"), rule("impersonate-on:user-info:list", "", "configmaps"))
	core := acting(t, "agent", rest.ImpersonationConfig{UserName: "principal"}).CoreV1()
	err := within(5*time.Second, func() error {
		_, err := core.ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	})
	if err != nil {
		t.Errorf("a permitted request as the principal: %v", err)
	}
	if _, err := core.Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a request that only the principal may send: %v", err)
	}
	if _, err := server.as(t, "principal").CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the principal: %v", err)
	}
	if _, err := server.as(t, "agent").CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the agent as itself: %v", err)
	}
}
