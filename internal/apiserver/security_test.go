// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// grant gives a user rules in all namespaces, and waits until the authorizer has them.
func grant(t *testing.T, name string, rules ...rbacv1.PolicyRule) kubernetes.Interface {
	t.Helper()
	admin := server.client(t).RbacV1()
	meta := metav1.ObjectMeta{Name: "test:" + name}
	if _, err := admin.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name}}}
	if _, err := admin.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := server.as(t, name)
	first := rules[0]
	err := within(5*time.Second, func() error {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: first.Verbs[0], Group: first.APIGroups[0], Resource: first.Resources[0]}}}
		got, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err == nil && !got.Status.Allowed {
			err = apierrors.NewForbidden(rbacv1.Resource("clusterroles"), meta.Name, nil)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var everyRBACVerb = rbacv1.PolicyRule{Verbs: []string{"create", "update", "patch", "get"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"*"}}

// TestEscalationIsRefused: no user can grant permissions, by roles and bindings, that the user does
// not have.
func TestEscalationIsRefused(t *testing.T) {
	namespace := server.namespace(t)
	client := grant(t, "climber", everyRBACVerb).RbacV1()
	secrets := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}}}
	own := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}}}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want forbidden", what, err)
		}
	}
	meta := metav1.ObjectMeta{Name: "climbing"}
	_, err := client.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: secrets}, metav1.CreateOptions{})
	refused("a role with secrets", err)
	if err != nil && !strings.Contains(err.Error(), "is attempting to grant RBAC permissions not currently held") {
		t.Errorf("message: %v", err)
	}
	if _, err := client.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: own}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a role with what they have: %v", err)
	}
	_, err = client.Roles(namespace).Patch(t.Context(), "climbing", types.MergePatchType,
		[]byte(`{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}]}`), metav1.PatchOptions{})
	refused("a patch to secrets", err)
	_, err = client.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "climber"}}}, metav1.CreateOptions{})
	refused("a binding to admin", err)
	_, err = client.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "climber"}}}, metav1.CreateOptions{})
	refused("a binding to cluster-admin", err)
	_, err = client.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: own,
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}}, metav1.CreateOptions{})
	refused("an aggregated role", err)
	_, err = server.client(t).RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "strong"}, Rules: secrets}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ClusterRoles().Patch(t.Context(), "strong", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}}`), metav1.PatchOptions{})
	refused("a label that adds a stronger role to view", err)
	_, err = client.Roles(namespace).Patch(t.Context(), "new", types.ApplyPatchType,
		[]byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"new"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}]}`),
		metav1.PatchOptions{FieldManager: "m"})
	refused("an applied role", err)
}

// TestEscalateAndBind: the verbs escalate and bind permit it.
func TestEscalateAndBind(t *testing.T) {
	namespace := server.namespace(t)
	client := grant(t, "trusted",
		rbacv1.PolicyRule{Verbs: []string{"create", "escalate", "bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings", "clusterroles"}}).RbacV1()
	meta := metav1.ObjectMeta{Name: "given"}
	rules := []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
	if _, err := client.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Errorf("escalate: %v", err)
	}
	if _, err := client.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("bind: %v", err)
	}
}

func TestForbiddenNamesWhoAndWhat(t *testing.T) {
	_, err := server.as(t, "nobody-special").CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	want := `secrets is forbidden: User "nobody-special" cannot list resource "secrets" in API group "" in the namespace "kube-system"`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestServiceAccountTokens: a token authenticates its service account, for the token's audience
// only.
func TestServiceAccountTokens(t *testing.T) {
	namespace, client := server.namespace(t), server.client(t)
	accounts := client.CoreV1().ServiceAccounts(namespace)
	secret, err := client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seconds := int64(700)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID}}}
	issued, err := accounts.CreateToken(t.Context(), "default", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if life := time.Until(issued.Status.ExpirationTimestamp.Time); life < 600*time.Second || life > 701*time.Second {
		t.Errorf("the token lives %s", life)
	}
	review := func(token string, audiences ...string) *authenticationv1.TokenReview {
		t.Helper()
		got, err := client.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	user := "system:serviceaccount:" + namespace + ":default"
	if got := review(issued.Status.Token); !got.Status.Authenticated || got.Status.User.Username != user {
		t.Errorf("review: %+v", got.Status)
	}
	if got := review(issued.Status.Token, "elsewhere"); got.Status.Authenticated {
		t.Errorf("accepted for another audience: %+v", got.Status)
	}
	if got := review("bogus"); got.Status.Authenticated || got.Status.Error == "" {
		t.Errorf("a bogus token: %+v", got.Status)
	}
	anonymous := server.anonymous(t)
	whoami := func() answer {
		return server.do(t, anonymous, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, "Authorization", "Bearer "+issued.Status.Token)
	}
	if got := whoami(); got.code != http.StatusCreated || !strings.Contains(got.body, user) {
		t.Errorf("whoami: %d %.200q", got.code, got.body)
	}
	if err := client.CoreV1().Secrets(namespace).Delete(t.Context(), secret.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = accounts.CreateToken(t.Context(), "default", request, metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("bound to a deleted object: %v", err)
	}
	request.Spec.BoundObjectRef = nil
	tooShort := int64(1)
	request.Spec.ExpirationSeconds = &tooShort
	if _, err := accounts.CreateToken(t.Context(), "default", request, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a token for a second: %v", err)
	}
	if _, err := accounts.CreateToken(t.Context(), "none", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a token of an account that does not exist: %v", err)
	}
}

func TestReviews(t *testing.T) {
	namespace, client := server.namespace(t), server.client(t)
	reviews := client.AuthorizationV1()
	spec := authorizationv1.SubjectAccessReviewSpec{User: "somebody",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "pods"}}
	got, err := reviews.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil || got.Status.Allowed {
		t.Errorf("%+v, %v", got.Status, err)
	}
	spec.Groups = []string{"system:masters"}
	local, err := reviews.LocalSubjectAccessReviews(namespace).Create(t.Context(),
		&authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: spec}, metav1.CreateOptions{})
	if err != nil || !local.Status.Allowed {
		t.Errorf("%+v, %v", local.Status, err)
	}
	for name, spec := range map[string]authorizationv1.SubjectAccessReviewSpec{
		"no attributes":   {User: "a"},
		"both attributes": {User: "a", ResourceAttributes: spec.ResourceAttributes, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/"}},
		"no user":         {ResourceAttributes: spec.ResourceAttributes},
	} {
		if _, err := reviews.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rules, err := server.as(t, "somebody").AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
	if err != nil || len(rules.Status.ResourceRules) == 0 || len(rules.Status.NonResourceRules) == 0 {
		t.Errorf("%+v, %v", rules, err)
	}
}
