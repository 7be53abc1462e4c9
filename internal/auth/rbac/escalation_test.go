// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestEscalation(t *testing.T) {
	r := resolverOf(t,
		clusterRole("reader", "get,list :pods", "get /healthz"),
		clusterRole("secrets", "get,list :secrets", "get :configmaps[a]", "get /metrics"),
		clusterRole("root", "* *:*", "* url:*"),
		clusterRole("escalator", "escalate rbac.authorization.k8s.io:clusterroles[special]"),
		clusterRole("binder", "bind rbac.authorization.k8s.io:clusterroles[secrets]"),
		role("team", "writer", "create :pods"),
		clusterBinding("readers", ref("ClusterRole", "reader"), "User:reader"),
		clusterBinding("roots", ref("ClusterRole", "root"), "User:root"),
		clusterBinding("escalators", ref("ClusterRole", "escalator"), "User:escalator"),
		clusterBinding("binders", ref("ClusterRole", "binder"), "User:binder"),
		binding("team", "team-binders", ref("ClusterRole", "binder"), "User:team-binder"),
		binding("team", "writers", ref("Role", "writer"), "User:writer"),
	)
	guard := NewEscalation(r, NewAuthorizer(r))

	aggregating := clusterRole("gather")
	aggregating.AggregationRule = &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"gather": "true"}}},
	}

	checkClusterRole := func(role, old *rbacv1.ClusterRole) func(context.Context) error {
		return func(ctx context.Context) error { return guard.CheckClusterRole(ctx, role, old) }
	}
	bindCluster := func(to rbacv1.RoleRef) func(context.Context) error {
		return func(ctx context.Context) error { return guard.CheckClusterRoleBinding(ctx, clusterBinding("new", to)) }
	}
	bindIn := func(namespace string, to rbacv1.RoleRef) func(context.Context) error {
		return func(ctx context.Context) error { return guard.CheckRoleBinding(ctx, binding(namespace, "new", to)) }
	}
	tests := []struct {
		name     string
		user     *user.DefaultInfo
		info     request.RequestInfo
		check    func(ctx context.Context) error
		want     string // "" for allowed
		notFound bool
	}{
		{name: "grant a held permission", user: &user.DefaultInfo{Name: "reader"},
			check: checkClusterRole(clusterRole("new", "get :pods", "get /healthz"), nil)},
		{name: "grant a held permission for one name", user: &user.DefaultInfo{Name: "reader"},
			check: checkClusterRole(clusterRole("new", "list :pods[one]"), nil)},
		{name: "grant a permission that is not held", user: &user.DefaultInfo{Name: "reader", Groups: []string{"a", "b"}},
			check: checkClusterRole(clusterRole("new", "get,list :secrets", "get :pods", "get :configmaps[a]", "get /metrics"), nil),
			want: `clusterroles.rbac.authorization.k8s.io "new" is forbidden: user "reader" (groups=["a" "b"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["configmaps"], ResourceNames:["a"], Verbs:["get"]}
{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}
{NonResourceURLs:["/metrics"], Verbs:["get"]}`},
		{name: "system:masters", user: &user.DefaultInfo{Name: "x", Groups: []string{user.SystemPrivilegedGroup}},
			check: checkClusterRole(clusterRole("new", "* *:*"), nil)},
		{name: "verb escalate", user: &user.DefaultInfo{Name: "escalator"},
			info:  request.RequestInfo{IsResourceRequest: true, APIGroup: rbacv1.GroupName, Resource: "clusterroles", Name: "special"},
			check: checkClusterRole(clusterRole("special", "* *:*"), nil)},
		{name: "verb escalate on another role", user: &user.DefaultInfo{Name: "escalator"},
			info:  request.RequestInfo{IsResourceRequest: true, APIGroup: rbacv1.GroupName, Resource: "clusterroles", Name: "new"},
			check: checkClusterRole(clusterRole("new", "get :pods"), nil), want: "not currently held"},
		{name: "add an aggregation rule", user: &user.DefaultInfo{Name: "reader"}, check: checkClusterRole(aggregating, nil),
			want: `clusterroles.rbac.authorization.k8s.io "gather" is forbidden: must have cluster-admin privileges to use the aggregationRule`},
		{name: "remove an aggregation rule", user: &user.DefaultInfo{Name: "reader"}, check: checkClusterRole(clusterRole("gather"), aggregating),
			want: "must have cluster-admin privileges"},
		{name: "add an aggregation rule with all permissions", user: &user.DefaultInfo{Name: "root"}, check: checkClusterRole(aggregating, nil)},
		{name: "role in a namespace, permission held there", user: &user.DefaultInfo{Name: "writer"},
			info:  request.RequestInfo{Namespace: "team"},
			check: func(ctx context.Context) error { return guard.CheckRole(ctx, role("team", "new", "create :pods")) }},
		{name: "role in another namespace, permission not held there", user: &user.DefaultInfo{Name: "writer"},
			info:  request.RequestInfo{Namespace: "other"},
			check: func(ctx context.Context) error { return guard.CheckRole(ctx, role("other", "new", "create :pods")) },
			want:  `roles.rbac.authorization.k8s.io "new" is forbidden: user "writer"`},
		{name: "bind a role that is held", user: &user.DefaultInfo{Name: "reader"}, check: bindCluster(ref("ClusterRole", "reader"))},
		{name: "bind a role that is not held", user: &user.DefaultInfo{Name: "reader"}, check: bindCluster(ref("ClusterRole", "secrets")),
			want: `clusterrolebindings.rbac.authorization.k8s.io "new" is forbidden: user "reader"`},
		{name: "verb bind", user: &user.DefaultInfo{Name: "binder"}, check: bindCluster(ref("ClusterRole", "secrets"))},
		{name: "verb bind on another role", user: &user.DefaultInfo{Name: "binder"}, check: bindCluster(ref("ClusterRole", "reader")), want: "not currently held"},
		{name: "verb bind in its namespace", user: &user.DefaultInfo{Name: "team-binder"}, check: bindIn("team", ref("ClusterRole", "secrets"))},
		{name: "verb bind in another namespace", user: &user.DefaultInfo{Name: "team-binder"}, check: bindIn("other", ref("ClusterRole", "secrets")),
			want: `rolebindings.rbac.authorization.k8s.io "new" is forbidden`},
		{name: "verb bind cluster-wide", user: &user.DefaultInfo{Name: "team-binder"}, check: bindCluster(ref("ClusterRole", "secrets")), want: "not currently held"},
		{name: "bind a missing role", user: &user.DefaultInfo{Name: "reader"}, check: bindCluster(ref("ClusterRole", "gone")), want: "not found", notFound: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := request.WithUser(context.Background(), tt.user)
			ctx = request.WithRequestInfo(ctx, &tt.info)
			ctx = request.WithNamespace(ctx, tt.info.Namespace)
			err := tt.check(ctx)
			if tt.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v\nwant %s", err, tt.want)
			}
			if tt.notFound != apierrors.IsNotFound(err) || tt.notFound == apierrors.IsForbidden(err) {
				t.Errorf("wrong kind of error: %v", apierrors.ReasonForError(err))
			}
		})
	}
	if err := guard.CheckRole(context.Background(), role("team", "r")); err == nil {
		t.Error("a request without a user was allowed")
	}
}
