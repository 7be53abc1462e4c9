// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// upstream makes TestSameAsUpstream read upstream's own test data and rewrite the digests:
//
//	go test ./internal/auth/rbac/bootstrap -upstream "$(go env GOMODCACHE)/k8s.io/kubernetes@v1.37.1"
var upstream = flag.String("upstream", "", "k8s.io/kubernetes source to take the digests of upstream's policy from")

const digestFile = "testdata/upstream-v1.37.1.txt"

// TestSameAsUpstream compares the digest of every object of the policy with upstream's. A differing
// line names the object.
func TestSameAsUpstream(t *testing.T) {
	if *upstream != "" {
		if err := os.WriteFile(digestFile, []byte(strings.Join(upstreamDigests(t, *upstream), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(digestFile)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	p := Default(Optional{})
	for i := range p.ClusterRoles {
		got = append(got, digest(t, "ClusterRole", &p.ClusterRoles[i]))
	}
	for i := range p.ClusterRoleBindings {
		got = append(got, digest(t, "ClusterRoleBinding", &p.ClusterRoleBindings[i]))
	}
	for i := range p.Roles {
		got = append(got, digest(t, "Role", &p.Roles[i]))
	}
	for i := range p.RoleBindings {
		got = append(got, digest(t, "RoleBinding", &p.RoleBindings[i]))
	}
	got = slices.DeleteFunc(got, isOurs)
	slices.Sort(got)
	if diff := cmp.Diff(strings.Fields(string(want)), strings.Fields(strings.Join(got, "\n"))); diff != "" {
		t.Errorf("the policy differs from upstream's (-upstream +ours):\n%s", diff)
	}
}

// isOurs reports whether upstream does not have the object of a line.
func isOurs(line string) bool {
	return slices.ContainsFunc([]string{ownershipReviewer, localPathProvisioner, unservedController, metricsReader, clusterDNS, ingressProxy}, func(name string) bool {
		return strings.Contains(line, "/"+name+" ")
	})
}

// digest returns "Kind/namespace/name digest". The aggregated rules are not part of upstream's
// policy.
func digest(t *testing.T, kind string, obj runtime.Object) string {
	t.Helper()
	content := map[string]any{}
	var namespace, name string
	switch o := obj.(type) {
	case *rbacv1.ClusterRole:
		name = o.Name
		content["meta"] = []any{o.Labels, o.Annotations}
		content["aggregation"] = o.AggregationRule
		if o.AggregationRule == nil {
			content["rules"] = o.Rules
		}
	case *rbacv1.Role:
		namespace, name = o.Namespace, o.Name
		content["meta"] = []any{o.Labels, o.Annotations}
		content["rules"] = o.Rules
	case *rbacv1.ClusterRoleBinding:
		name = o.Name
		content["meta"] = []any{o.Labels, o.Annotations}
		content["role"], content["subjects"] = o.RoleRef, o.Subjects
	case *rbacv1.RoleBinding:
		namespace, name = o.Namespace, o.Name
		content["meta"] = []any{o.Labels, o.Annotations}
		content["role"], content["subjects"] = o.RoleRef, o.Subjects
	default:
		t.Fatalf("no digest of a %T", obj)
	}
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s/%s/%s %x", kind, namespace, name, sha256.Sum256(data))
}

func upstreamDigests(t *testing.T, source string) []string {
	t.Helper()
	var digests []string
	for _, file := range []string{"cluster-roles", "controller-roles", "namespace-roles", "cluster-role-bindings", "controller-role-bindings", "namespace-role-bindings"} {
		data, err := os.ReadFile(filepath.Join(source, "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata", file+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []json.RawMessage }
		if err := yaml.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			var head struct{ Kind string }
			if err := json.Unmarshal(item, &head); err != nil {
				t.Fatal(err)
			}
			obj := map[string]runtime.Object{
				"ClusterRole": &rbacv1.ClusterRole{}, "Role": &rbacv1.Role{},
				"ClusterRoleBinding": &rbacv1.ClusterRoleBinding{}, "RoleBinding": &rbacv1.RoleBinding{},
			}[head.Kind]
			if err := json.Unmarshal(item, obj); err != nil {
				t.Fatal(err)
			}
			digests = append(digests, digest(t, head.Kind, obj))
		}
	}
	slices.Sort(digests)
	return digests
}
