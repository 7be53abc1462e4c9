// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// resolverOf returns a resolver over the given objects.
func resolverOf(t testing.TB, objects ...runtime.Object) *Resolver {
	t.Helper()
	rbac := informers.NewSharedInformerFactory(nil, 0).Rbac().V1()
	r, err := NewResolver(rbac)
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		var store cache.Indexer
		switch obj.(type) {
		case *rbacv1.Role:
			store = rbac.Roles().Informer().GetIndexer()
		case *rbacv1.ClusterRole:
			store = rbac.ClusterRoles().Informer().GetIndexer()
		case *rbacv1.RoleBinding:
			store = rbac.RoleBindings().Informer().GetIndexer()
		case *rbacv1.ClusterRoleBinding:
			store = rbac.ClusterRoleBindings().Informer().GetIndexer()
		}
		if err := store.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// rule parses "get,list apps:deployments[web]", "get :pods", "get /healthz" or "get url:*".
func rule(text string) rbacv1.PolicyRule {
	verbs, target, _ := strings.Cut(text, " ")
	r := rbacv1.PolicyRule{Verbs: strings.Split(verbs, ",")}
	if strings.HasPrefix(target, "/") || target == "url:*" {
		r.NonResourceURLs = []string{strings.TrimPrefix(target, "url:")}
		return r
	}
	if before, name, ok := strings.Cut(strings.TrimSuffix(target, "]"), "["); ok {
		target, r.ResourceNames = before, []string{name}
	}
	group, resource, _ := strings.Cut(target, ":")
	r.APIGroups, r.Resources = []string{group}, []string{resource}
	return r
}

func rules(texts ...string) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	for _, text := range texts {
		all = append(all, rule(text))
	}
	return all
}

func clusterRole(name string, texts ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules(texts...)}
}

func role(namespace, name string, texts ...string) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules(texts...)}
}

func ref(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// subject parses "User:bob", "Group:ops" or "ServiceAccount:ns/name".
func subject(text string) rbacv1.Subject {
	kind, name, _ := strings.Cut(text, ":")
	s := rbacv1.Subject{Kind: kind, Name: name}
	if kind == rbacv1.ServiceAccountKind {
		s.Namespace, s.Name, _ = strings.Cut(name, "/")
	}
	return s
}

func subjects(texts ...string) []rbacv1.Subject {
	var all []rbacv1.Subject
	for _, text := range texts {
		all = append(all, subject(text))
	}
	return all
}

func clusterBinding(name string, to rbacv1.RoleRef, who ...string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: to, Subjects: subjects(who...)}
}

func binding(namespace, name string, to rbacv1.RoleRef, who ...string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: to, Subjects: subjects(who...)}
}

func TestAllows(t *testing.T) {
	resource := func(verb, group, resource, subresource, name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{ResourceRequest: true, Verb: verb, APIGroup: group, Resource: resource, Subresource: subresource, Name: name}
	}
	path := func(verb, path string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, Path: path}
	}
	tests := []struct {
		rule    string
		request authorizer.AttributesRecord
		want    bool
	}{
		{"get :pods", resource("get", "", "pods", "", "a"), true},
		{"get :pods", resource("list", "", "pods", "", ""), false},
		{"get :pods", resource("get", "apps", "pods", "", "a"), false},
		{"get :pods", resource("get", "", "pods", "log", "a"), false},
		{"get :pods/log", resource("get", "", "pods", "log", "a"), true},
		{"get :pods/log", resource("get", "", "pods", "", "a"), false},
		{"get,list :pods", resource("list", "", "pods", "", ""), true},
		{"* :pods", resource("deletecollection", "", "pods", "", ""), true},
		{"get *:pods", resource("get", "anything", "pods", "", ""), true},
		{"get :*", resource("get", "", "pods", "log", "a"), true},
		{"update *:*/scale", resource("update", "apps", "deployments", "scale", "web"), true},
		{"update *:*/scale", resource("update", "apps", "deployments", "", "web"), false},
		{"update *:*/scale", resource("update", "apps", "deployments", "upscale", "web"), false},
		{"update *:*/scale", resource("update", "apps", "deployments", "status", "web"), false},
		{"get :configmaps[cfg]", resource("get", "", "configmaps", "", "cfg"), true},
		{"get :configmaps[cfg]", resource("get", "", "configmaps", "", "other"), false},
		{"list :configmaps[cfg]", resource("list", "", "configmaps", "", ""), false},
		{"get /healthz", path("get", "/healthz"), true},
		{"get /healthz", path("get", "/healthz/etcd"), false},
		{"get /healthz/*", path("get", "/healthz/etcd"), true},
		{"get /healthz/*", path("get", "/healthz"), false},
		{"get url:*", path("get", "/anything/at/all"), true},
		{"get /*", path("get", "/anything"), true},
		{"post /healthz", path("get", "/healthz"), false},
		{"get url:*", resource("get", "", "pods", "", "a"), false},
		{"get *:*", path("get", "/healthz"), false},
	}
	for _, tt := range tests {
		r := rule(tt.rule)
		if got := Allows(&r, tt.request); got != tt.want {
			t.Errorf("%q allows %+v: %v, want %v", tt.rule, tt.request, got, tt.want)
		}
	}
}

func TestAuthorize(t *testing.T) {
	a := NewAuthorizer(resolverOf(t,
		clusterRole("reader", "get,list :pods"),
		clusterRole("root", "* *:*", "* url:*"),
		role("team", "writer", "create :pods"),
		clusterBinding("readers", ref("ClusterRole", "reader"), "User:zoe", "Group:ops"),
		clusterBinding("sa-root", ref("ClusterRole", "root"), "ServiceAccount:team/builder"),
		clusterBinding("sa-nowhere", ref("ClusterRole", "root"), "ServiceAccount:/stray"),
		clusterBinding("dangling", ref("ClusterRole", "gone"), "User:bob"),
		binding("team", "writers", ref("Role", "writer"), "User:bob", "ServiceAccount:/local"),
		binding("team", "local-readers", ref("ClusterRole", "reader"), "User:amy"),
		binding("other", "odd", ref("Mole", "writer"), "User:bob"),
	))
	sa := func(namespace, name string) user.Info { return serviceaccount.UserInfo(namespace, name, "") }
	tests := []struct {
		name      string
		user      user.Info
		verb      string
		namespace string
		want      authorizer.Decision
		reason    string
	}{
		{"cluster-wide user", &user.DefaultInfo{Name: "zoe"}, "get", "", authorizer.DecisionAllow,
			`RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "zoe"`},
		{"by group, in any namespace", &user.DefaultInfo{Name: "x", Groups: []string{"dev", "ops"}}, "list", "team", authorizer.DecisionAllow,
			`RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "ops"`},
		{"in the binding's namespace", &user.DefaultInfo{Name: "amy"}, "get", "team", authorizer.DecisionAllow,
			`RBAC: allowed by RoleBinding "local-readers/team" of ClusterRole "reader" to User "amy"`},
		{"in another namespace", &user.DefaultInfo{Name: "amy"}, "get", "other", authorizer.DecisionNoOpinion, ""},
		{"a role binding is not cluster-wide", &user.DefaultInfo{Name: "amy"}, "get", "", authorizer.DecisionNoOpinion, ""},
		{"service account", sa("team", "builder"), "delete", "far", authorizer.DecisionAllow,
			`RBAC: allowed by ClusterRoleBinding "sa-root" of ClusterRole "root" to ServiceAccount "builder/team"`},
		{"service account of the binding's namespace", sa("team", "local"), "create", "team", authorizer.DecisionAllow,
			`RBAC: allowed by RoleBinding "writers/team" of Role "writer" to ServiceAccount "local/team"`},
		{"service account of the same name in another namespace", sa("far", "local"), "create", "team", authorizer.DecisionNoOpinion, ""},
		{"service account without namespace matches no subject", sa("", "stray"), "get", "", authorizer.DecisionNoOpinion, ""},
		{"a missing role is reported", &user.DefaultInfo{Name: "bob"}, "get", "", authorizer.DecisionNoOpinion,
			`RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`},
		{"a missing role does not hide other roles", &user.DefaultInfo{Name: "bob"}, "create", "team", authorizer.DecisionAllow,
			`RBAC: allowed by RoleBinding "writers/team" of Role "writer" to User "bob"`},
		{"unknown kind of role", &user.DefaultInfo{Name: "bob"}, "create", "other", authorizer.DecisionNoOpinion,
			`RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, unsupported role reference kind: "Mole"]`},
		{"user with the name of a group", &user.DefaultInfo{Name: "ops"}, "get", "", authorizer.DecisionNoOpinion, ""},
		{"request without a user", nil, "get", "", authorizer.DecisionNoOpinion, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			decision, reason, err := a.Authorize(context.Background(), authorizer.AttributesRecord{
				User: tt.user, Verb: tt.verb, Namespace: tt.namespace, Resource: "pods", ResourceRequest: true,
			})
			if decision != tt.want || reason != tt.reason || err != nil {
				t.Errorf("got %v %q %v\nwant %v %q", decision, reason, err, tt.want, tt.reason)
			}
		})
	}
}

func TestIndexFollowsUpdates(t *testing.T) {
	rbac := informers.NewSharedInformerFactory(nil, 0).Rbac().V1()
	r, err := NewResolver(rbac)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewResolver(rbac); err != nil {
		t.Errorf("a second resolver on the same informers: %v", err)
	}
	store := rbac.ClusterRoleBindings().Informer().GetIndexer()
	if err := rbac.ClusterRoles().Informer().GetIndexer().Add(clusterRole("reader", "get :pods")); err != nil {
		t.Fatal(err)
	}
	ruleCount := func(name string) int {
		all, err := r.PolicyRules(&user.DefaultInfo{Name: name}, "")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	for _, step := range []struct {
		change   func(any) error
		subjects []string
		ann, bob int
	}{
		{store.Add, []string{"User:ann"}, 1, 0},
		{store.Update, []string{"User:bob"}, 0, 1},
		{store.Update, []string{"User:ann", "User:bob", "User:bob"}, 1, 1},
		{store.Delete, nil, 0, 0},
	} {
		if err := step.change(clusterBinding("b", ref("ClusterRole", "reader"), step.subjects...)); err != nil {
			t.Fatal(err)
		}
		if a, b := ruleCount("ann"), ruleCount("bob"); a != step.ann || b != step.bob {
			t.Errorf("subjects %v: ann has %d rules, bob %d; want %d and %d", step.subjects, a, b, step.ann, step.bob)
		}
	}
}

func TestRulesFor(t *testing.T) {
	a := NewAuthorizer(resolverOf(t,
		clusterRole("both", "get :pods[one]", "get /metrics"),
		clusterBinding("b", ref("ClusterRole", "both"), "Group:g1", "Group:g2"),
	))
	resources, paths, incomplete, err := a.RulesFor(context.Background(), &user.DefaultInfo{Name: "u", Groups: []string{"g1", "g2"}}, "ns")
	if err != nil || incomplete {
		t.Fatalf("incomplete %v, error %v", incomplete, err)
	}
	wantResources := []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{
		Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"one"},
	}}
	wantPaths := []authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}
	if diff := cmp.Diff(wantResources, resources); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wantPaths, paths); diff != "" {
		t.Error(diff)
	}
}

// TestAgainstModel compares the indexed authorizer with the definition: a request is allowed if any
// rule of any binding that names the user allows it.
func TestAgainstModel(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	pick := func(from ...string) string { return from[random.Intn(len(from))] }
	for round := range 200 {
		var objects []runtime.Object
		roleRules := map[string][]rbacv1.PolicyRule{}
		for i := range 4 {
			c := clusterRole(fmt.Sprint("c", i), pick("get", "list", "*")+" "+pick("", "apps", "*")+":"+pick("pods", "pods/log", "*", "*/log", "pods[a]"))
			roleRules[c.Name] = c.Rules
			objects = append(objects, c)
		}
		type bound struct {
			namespace string
			subjects  []rbacv1.Subject
			rules     []rbacv1.PolicyRule
		}
		var all []bound
		for i := range 6 {
			to := ref("ClusterRole", fmt.Sprint("c", random.Intn(4)))
			who := []string{pick("User:u1", "User:u2", "Group:g1", "Group:g2", "ServiceAccount:n1/s", "ServiceAccount:/s"), pick("User:u1", "Group:g1")}
			namespace := pick("", "n1", "n2")
			if namespace == "" {
				objects = append(objects, clusterBinding(fmt.Sprint("b", i), to, who...))
			} else {
				objects = append(objects, binding(namespace, fmt.Sprint("b", i), to, who...))
			}
			all = append(all, bound{namespace, subjects(who...), roleRules[to.Name]})
		}
		a := NewAuthorizer(resolverOf(t, objects...))
		for range 20 {
			u := &user.DefaultInfo{Name: pick("u1", "u2", "system:serviceaccount:n1:s", "system:serviceaccount:n2:s")}
			if random.Intn(2) == 0 {
				u.Groups = []string{pick("g1", "g2", "g3")}
			}
			request := authorizer.AttributesRecord{
				User: u, ResourceRequest: true, Verb: pick("get", "list"), Namespace: pick("", "n1", "n2"),
				APIGroup: pick("", "apps"), Resource: "pods", Subresource: pick("", "log"), Name: pick("a", "b"),
			}
			want := authorizer.DecisionNoOpinion
			for _, b := range all {
				here := b.namespace == "" || b.namespace == request.Namespace
				if here && anyAllows(b.rules, request) && slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool { return isSubject(u, s, b.namespace) }) {
					want = authorizer.DecisionAllow
				}
			}
			if got, reason, _ := a.Authorize(context.Background(), request); got != want {
				t.Fatalf("round %d: %+v by %+v: %v (%s), want %v", round, request, u, got, reason, want)
			}
		}
	}
}

func isSubject(u user.Info, s rbacv1.Subject, namespace string) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return u.GetName() == s.Name
	case rbacv1.GroupKind:
		return slices.Contains(u.GetGroups(), s.Name)
	default:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return namespace != "" && u.GetName() == "system:serviceaccount:"+namespace+":"+s.Name
	}
}

func BenchmarkAuthorize(b *testing.B) {
	objects := []runtime.Object{clusterRole("reader", "get :pods")}
	for i := range 5000 {
		objects = append(objects, clusterBinding(fmt.Sprint("b", i), ref("ClusterRole", "reader"), fmt.Sprint("User:u", i)))
	}
	a := NewAuthorizer(resolverOf(b, objects...))
	request := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "u4999", Groups: []string{"system:authenticated"}}, Verb: "get", Resource: "pods", ResourceRequest: true,
	}
	for b.Loop() {
		if decision, _, _ := a.Authorize(context.Background(), request); decision != authorizer.DecisionAllow {
			b.Fatal(decision)
		}
	}
}
