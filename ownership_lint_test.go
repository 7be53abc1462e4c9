// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred"
	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// yard is a cluster with the clients of an administrator and of jane, who has only the permissions
// that a test grants. Its objects are in one namespace.
type yard struct {
	t         *testing.T
	admin     kubernetes.Interface
	asAdmin   *rest.Config
	asJane    *rest.Config
	namespace string
}

func newYard(t *testing.T) *yard {
	cluster := startWith(t, kindred.Options{DataDir: t.TempDir(), NoNode: true})
	y := &yard{t: t, admin: client(t, cluster), asAdmin: cluster.Config(), asJane: cluster.Config(), namespace: "default"}
	y.asJane.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:authenticated"}}
	return y
}

func (y *yard) lint(as *rest.Config, spec ownership.OwnershipLintSpec) ownership.OwnershipLintStatus {
	y.t.Helper()
	answer, err := review(y.t, as, "ownershiplints", "OwnershipLint", ownership.OwnershipLint{Spec: spec})
	if err != nil {
		y.t.Fatal(err)
	}
	return answer.Status
}

// repair repairs the namespace and returns the result of the only finding.
func (y *yard) repair(as *rest.Config, spec ownership.OwnershipRepairSpec) ownership.RepairResult {
	y.t.Helper()
	spec.Namespace = y.namespace
	answer, err := review(y.t, as, "ownershiprepairs", "OwnershipRepair", ownership.OwnershipRepair{Spec: spec})
	if err != nil {
		y.t.Fatal(err)
	}
	if len(answer.Status.Results) != 1 {
		y.t.Fatalf("%d results, want one: %+v", len(answer.Status.Results), answer.Status)
	}
	return answer.Status.Results[0]
}

func (y *yard) create(name string, refs ...metav1.OwnerReference) *corev1.ConfigMap {
	y.t.Helper()
	o, err := y.admin.CoreV1().ConfigMaps(y.namespace).Create(y.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: refs}}, metav1.CreateOptions{})
	if err != nil {
		y.t.Fatal(err)
	}
	return o
}

func (y *yard) get(name string) *corev1.ConfigMap {
	y.t.Helper()
	o, err := y.admin.CoreV1().ConfigMaps(y.namespace).Get(y.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		y.t.Fatal(err)
	}
	return o
}

// strip removes an object's owner references after the collector has observed them, which an
// OwnershipTree shows.
func (y *yard) strip(name string) {
	y.t.Helper()
	question := ownership.OwnershipTree{Spec: ownership.OwnershipTreeSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: y.namespace, Name: name}}}
	if tree, err := review(y.t, y.asAdmin, "ownershiptrees", "OwnershipTree", question); err != nil || len(tree.Status.Owners) != 1 {
		y.t.Fatalf("tree %+v, %v", tree.Status, err)
	}
	_, err := y.admin.CoreV1().ConfigMaps(y.namespace).Patch(y.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
	if err != nil {
		y.t.Fatal(err)
	}
}

// grant allows a user verbs on the ConfigMaps of a namespace.
func grant(t *testing.T, api kubernetes.Interface, namespace, user string, verbs ...string) {
	t.Helper()
	name := strings.Join(append([]string{user}, verbs...), "-")
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}},
		RoleRef: rbacv1.RoleRef{Kind: "Role", Name: name, APIGroup: rbacv1.GroupName},
	}
	if _, err := api.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestLintAfterARestart: the history shows references that were lost before the process started.
func TestLintAfterARestart(t *testing.T) {
	options := kindred.Options{DataDir: t.TempDir(), NoNode: true}
	before := startWith(t, options)
	y := &yard{t: t, admin: client(t, before), asAdmin: before.Config(), namespace: "default"}
	owner := y.create("owner")
	y.create("dependent", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
	y.create("let-go", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: y.create("gone").UID})
	y.strip("dependent")
	orphan := metav1.DeletePropagationOrphan
	if err := y.admin.CoreV1().ConfigMaps(y.namespace).Delete(t.Context(), "gone", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dependent is orphaned", func(context.Context) (bool, error) { return len(y.get("let-go").OwnerReferences) == 0, nil })
	before.Stop()
	after := startWith(t, options)
	y.admin, y.asAdmin = client(t, after), after.Config()
	var s ownership.OwnershipLintStatus
	eventually(t, "the lost reference is found", func(context.Context) (bool, error) {
		s = y.lint(y.asAdmin, ownership.OwnershipLintSpec{Namespace: y.namespace})
		return len(s.Findings) > 0 && len(s.Warnings) == 0, nil
	})
	if f := s.Findings[0]; len(s.Findings) > 1 || f.Rule != ownership.RuleLostReference || f.Object.Name != "dependent" || f.Fix == nil || f.Fix.OwnerReferences[0].UID != owner.UID {
		t.Errorf("found %+v", s.Findings)
	}
}

// TestLintAndRepair removes an owner reference as backup tools do. The loss is found by users who
// may read the objects, and repaired by users who may write them.
func TestLintAndRepair(t *testing.T) {
	y := newYard(t)
	if s := y.lint(y.asAdmin, ownership.OwnershipLintSpec{}); len(s.Findings) > 0 || s.Checked == 0 || len(s.Warnings) > 0 {
		t.Errorf("findings in a new cluster: %+v", s)
	}
	if s := y.lint(y.asJane, ownership.OwnershipLintSpec{}); len(s.Findings) > 0 || s.Checked > 0 || s.Hidden == 0 {
		t.Errorf("findings for a user without permissions: %+v", s)
	}

	owner := y.create("owner")
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true)}
	y.create("dependent", ref)
	y.strip("dependent")
	here := ownership.OwnershipLintSpec{Namespace: y.namespace}
	var found ownership.LintFinding
	eventually(t, "the lost reference is found", func(context.Context) (bool, error) {
		s := y.lint(y.asAdmin, here)
		if len(s.Findings) != 1 {
			return false, nil
		}
		found = s.Findings[0]
		return true, nil
	})
	lost := y.get("dependent")
	if found.Rule != ownership.RuleLostReference || found.Object.UID != lost.UID || found.Fix == nil || found.Fix.ResourceVersion != lost.ResourceVersion {
		t.Fatalf("found %+v", found)
	}

	if s := y.lint(y.asJane, here); len(s.Findings) > 0 {
		t.Errorf("findings for a user without permissions: %+v", s)
	}
	grant(t, y.admin, y.namespace, "jane", "get")
	eventually(t, "jane may read", func(context.Context) (bool, error) { return len(y.lint(y.asJane, here).Findings) == 1, nil })
	// A repair has the permissions of its caller: jane may only read, so she repairs nothing.
	if r := y.repair(y.asJane, ownership.OwnershipRepairSpec{}); r.Outcome != ownership.RepairSkipped || !strings.Contains(r.Reason, `User "jane" cannot patch resource "configmaps"`) {
		t.Errorf("repair by a user who may only read: %+v", r)
	}
	grant(t, y.admin, y.namespace, "jane", "patch", "delete")
	eventually(t, "jane may write", func(context.Context) (bool, error) {
		return y.repair(y.asJane, ownership.OwnershipRepairSpec{DryRun: true}).Outcome == ownership.RepairWouldApply, nil
	})
	if o := y.get("dependent"); o.ResourceVersion != lost.ResourceVersion {
		t.Errorf("a dry run has changed the object: %+v", o)
	}
	seen := ownership.RepairPrecondition{UID: lost.UID, ResourceVersion: lost.ResourceVersion}
	if _, err := y.admin.CoreV1().ConfigMaps(y.namespace).Patch(t.Context(), "dependent", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// Whether or not the collector has observed the change yet, the precondition fails.
	if r := y.repair(y.asJane, ownership.OwnershipRepairSpec{Preconditions: []ownership.RepairPrecondition{seen}}); r.Outcome != ownership.RepairSkipped || r.Reason != "the object has changed since it was checked" {
		t.Errorf("repair of a changed object: %+v", r)
	}
	eventually(t, "the change is seen", func(context.Context) (bool, error) {
		return y.lint(y.asJane, here).Findings[0].Fix.ResourceVersion == y.get("dependent").ResourceVersion, nil
	})
	if r := y.repair(y.asJane, ownership.OwnershipRepairSpec{}); r.Outcome != ownership.RepairApplied {
		t.Fatalf("repair by a user who may write: %+v", r)
	}
	if s := y.lint(y.asAdmin, here); len(s.Findings) > 0 {
		t.Errorf("findings after the repair: %+v", s)
	}
	if o := y.get("dependent"); len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != ref.UID || !*o.OwnerReferences[0].Controller || o.Data["a"] != "b" {
		t.Errorf("the repaired object: %+v", o)
	}
	// The garbage collector follows the restored reference.
	if err := y.admin.CoreV1().ConfigMaps(y.namespace).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dependent goes with its owner", func(ctx context.Context) (bool, error) {
		_, err := y.admin.CoreV1().ConfigMaps(y.namespace).Get(ctx, "dependent", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}
