// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred"
	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// grave is a cluster with ConfigMaps that own each other, for tests that delete and undelete them.
type grave struct {
	t       *testing.T
	cluster *kindred.Cluster
	api     kubernetes.Interface
}

const shop = "shop"

func newGrave(t *testing.T) *grave {
	t.Helper()
	cluster := startWith(t, kindred.Options{DataDir: t.TempDir(), NoNode: true})
	g := &grave{t, cluster, client(t, cluster)}
	g.makeNamespace()
	return g
}

func (g *grave) makeNamespace() {
	g.t.Helper()
	_, err := g.api.CoreV1().Namespaces().Create(g.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, metav1.CreateOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
}

// make creates a ConfigMap with owners; its data contains their UIDs.
func (g *grave) make(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	g.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: shop, Labels: map[string]string{"name": name}}, Data: map[string]string{"name": name}}
	for _, o := range owners {
		object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID})
		object.Data["uid-of-"+o.Name] = string(o.UID)
	}
	created, err := g.api.CoreV1().ConfigMaps(shop).Create(g.t.Context(), object, metav1.CreateOptions{FieldManager: "maker"})
	if err != nil {
		g.t.Fatal(err)
	}
	return created
}

func (g *grave) get(name string) *corev1.ConfigMap {
	g.t.Helper()
	found, err := g.api.CoreV1().ConfigMaps(shop).Get(g.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return found
}

// delete deletes a ConfigMap and waits until only the ConfigMaps in left exist.
func (g *grave) delete(name string, policy metav1.DeletionPropagation, left ...string) {
	g.t.Helper()
	if err := g.api.CoreV1().ConfigMaps(shop).Delete(g.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		g.t.Fatal(err)
	}
	g.eventually("exactly the expected ConfigMaps are left", func() bool { return slices.Equal(g.names(), left) })
}

func (g *grave) names() (names []string) {
	g.t.Helper()
	list, err := g.api.CoreV1().ConfigMaps(shop).List(g.t.Context(), metav1.ListOptions{LabelSelector: "name"})
	if err != nil {
		g.t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (g *grave) eventually(what string, done func() bool) {
	g.t.Helper()
	err := wait.PollUntilContextTimeout(g.t.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		g.t.Fatalf("waited in vain until %s; existing: %v", what, g.names())
	}
}

func (g *grave) ask(as *rest.Config, spec ownership.UndeletionSpec) (ownership.UndeletionStatus, error) {
	g.t.Helper()
	answer, err := review(g.t, as, "undeletions", "Undeletion", ownership.Undeletion{Spec: spec})
	return answer.Status, err
}

func of(name string) ownership.UndeletionSpec {
	return ownership.UndeletionSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: shop, Name: name}}
}

// undelete undeletes a ConfigMap and checks the outcome for each object.
func (g *grave) undelete(name string, phase ownership.UndeletionPhase, want ...string) ownership.UndeletionStatus {
	g.t.Helper()
	s, err := g.ask(g.cluster.Config(), of(name))
	if err != nil {
		g.t.Fatal(err)
	}
	if diff := cmp.Diff(want, outcomes(s)); diff != "" || s.Phase != phase {
		g.t.Fatalf("phase %s, problems %q, outcomes (-want +got):\n%s", s.Phase, s.Problems, diff)
	}
	return s
}

func outcomes(s ownership.UndeletionStatus) (outcomes []string) {
	for _, r := range s.Results {
		outcomes = append(outcomes, fmt.Sprintf("%s %s", r.Object.Name, r.Outcome))
	}
	return outcomes
}

// checkRestored checks that an object was recreated with its former content, except for UIDs.
func (g *grave) checkRestored(was *corev1.ConfigMap, owners ...string) {
	g.t.Helper()
	is := g.get(was.Name)
	want := was.DeepCopy()
	for i, owner := range owners {
		uid := g.get(owner).UID
		want.OwnerReferences[i].UID = uid
		want.Data["uid-of-"+owner] = string(uid)
	}
	if is.UID == was.UID {
		g.t.Errorf("%s was not recreated", was.Name)
	}
	for i, entry := range is.ManagedFields {
		if entry.Manager == "maker" && entry.FieldsV1 != nil {
			for _, owner := range is.OwnerReferences {
				if !strings.Contains(entry.FieldsV1.String(), string(owner.UID)) {
					g.t.Errorf("%s: its creator does not manage the reference to %s: %s", was.Name, owner.Name, entry.FieldsV1)
				}
			}
		}
		is.ManagedFields[i].FieldsV1 = nil
	}
	for i := range want.ManagedFields {
		want.ManagedFields[i].FieldsV1 = nil
	}
	want.UID, want.ResourceVersion, want.CreationTimestamp = is.UID, is.ResourceVersion, is.CreationTimestamp
	if diff := cmp.Diff(want, is); diff != "" {
		g.t.Errorf("%s (-was +is):\n%s", was.Name, diff)
	}
}

// TestUndelete deletes and restores a graph with a diamond; the objects contain each other's UIDs.
func TestUndelete(t *testing.T) {
	g := newGrave(t)
	root := g.make("a-root")
	left, right := g.make("b-left", root), g.make("c-right", root)
	leaf := g.make("d-leaf", left, right)
	all := []string{"a-root Restored", "b-left Restored", "c-right Restored", "d-leaf Restored"}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		g.delete("a-root", policy)
		dry := of("a-root")
		dry.DryRun = true
		if s, err := g.ask(g.cluster.Config(), dry); err != nil || s.Phase != ownership.UndeletionPlanned || s.Restored != 4 || len(g.names()) > 0 {
			t.Fatalf("dry run: %v, %+v, existing: %v", err, s, g.names())
		}
		s := g.undelete("a-root", ownership.UndeletionComplete, all...)
		if s.Deletion.By.User != "kubernetes-admin" || s.Deletion.PropagationPolicy != policy || s.Deletion.Object.UID != root.UID {
			t.Errorf("the deletion of the root: %+v", s.Deletion)
		}
		g.checkRestored(root)
		g.checkRestored(left, "a-root")
		g.checkRestored(right, "a-root")
		g.checkRestored(leaf, "b-left", "c-right")
		root, left, right, leaf = g.get("a-root"), g.get("b-left"), g.get("c-right"), g.get("d-leaf")
	}
	if s, err := g.ask(g.cluster.Config(), of("a-root")); err != nil || s.Phase != ownership.UndeletionComplete || s.Restored > 0 || len(s.Results) != 1 || s.Results[0].Outcome != ownership.UndeletionUnchanged {
		t.Errorf("undeletion of a restored object: %v, %+v", err, s)
	}
	g.make("e-other")
	if _, err := g.ask(g.cluster.Config(), of("e-other")); !apierrors.IsConflict(err) {
		t.Errorf("undeletion of an existing object: %v", err)
	}
	if _, err := g.ask(g.cluster.Config(), of("never")); !apierrors.IsNotFound(err) {
		t.Errorf("undeletion of an object that never existed: %v", err)
	}
	// The collector follows the restored references.
	g.delete("a-root", metav1.DeletePropagationBackground, "e-other")
}

// TestUndeleteAdopts: dependents that still exist get their reference to the restored owner back.
func TestUndeleteAdopts(t *testing.T) {
	g := newGrave(t)
	root := g.make("a-root")
	middle := g.make("b-middle", root)
	g.make("c-leaf", middle)
	g.delete("a-root", metav1.DeletePropagationOrphan, "b-middle", "c-leaf")
	g.eventually("the dependent is orphaned", func() bool { return len(g.get("b-middle").OwnerReferences) == 0 })
	s := g.undelete("a-root", ownership.UndeletionComplete, "a-root Restored", "b-middle Adopted", "c-leaf Unchanged")
	is := g.get("b-middle")
	if is.UID != middle.UID || len(is.OwnerReferences) != 1 || is.OwnerReferences[0].UID != s.Results[0].Object.UID {
		t.Errorf("the adopted dependent: %+v", is.ObjectMeta)
	}

	// A dependent that another owner keeps loses one reference, and then has both again.
	other := g.make("d-other")
	g.make("e-shared", g.get("a-root"), other)
	g.delete("a-root", metav1.DeletePropagationBackground, "d-other", "e-shared")
	g.eventually("the reference is gone", func() bool { return len(g.get("e-shared").OwnerReferences) == 1 })
	g.undelete("a-root", ownership.UndeletionComplete, "a-root Restored", "b-middle Restored", "e-shared Adopted", "c-leaf Restored")
	if owners := g.get("e-shared").OwnerReferences; len(owners) != 2 {
		t.Errorf("owners %+v", owners)
	}
}

// TestUndeleteDuringTheCascade undeletes while the collector still deletes: dependents that it has
// not reached stay, and deleted dependents are restored.
func TestUndeleteDuringTheCascade(t *testing.T) {
	g := newGrave(t)
	root := g.make("root")
	const dependents = 300
	var names []string
	for i := range dependents {
		names = append(names, g.make(fmt.Sprintf("child-%03d", i), root).Name)
	}
	background := metav1.DeletePropagationBackground
	if err := g.api.CoreV1().ConfigMaps(shop).Delete(t.Context(), "root", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	g.eventually("some dependents are deleted", func() bool { return len(g.names()) < dependents })
	g.eventually("the undeletion is complete", func() bool {
		s, err := g.ask(g.cluster.Config(), of("root"))
		if err != nil || s.Phase == ownership.UndeletionRefused {
			t.Fatalf("%v, %q", err, s.Problems)
		}
		return s.Phase == ownership.UndeletionComplete
	})
	if got := g.names(); !slices.Equal(got, append(names, "root")) {
		t.Errorf("%d objects, want %d", len(got), dependents+1)
	}
	uid := g.get("root").UID
	for _, name := range names {
		if refs := g.get(name).OwnerReferences; len(refs) != 1 || refs[0].UID != uid {
			t.Fatalf("%s has owners %+v", name, refs)
		}
	}
}

// TestUndeleteContinues resumes an undeletion that a quota has stopped after each write.
func TestUndeleteContinues(t *testing.T) {
	g := newGrave(t)
	root := g.make("a-root")
	left := g.make("b-left", root)
	right := g.make("b-right", root)
	leaf := g.make("c-leaf", left, right)
	g.delete("a-root", metav1.DeletePropagationBackground)
	for room := range 4 {
		g.allow(room)
		s, err := g.ask(g.cluster.Config(), of("a-root"))
		want := ownership.UndeletionIncomplete
		if room == 0 {
			want = ownership.UndeletionRefused // The dry run already found the quota exceeded.
		}
		if err != nil || s.Phase != want || len(s.Problems) == 0 || !strings.Contains(s.Problems[0], "exceeded quota") || len(g.names()) != room {
			t.Fatalf("quota of %d: %v, %+v, existing: %v", room, err, s, g.names())
		}
		for _, name := range g.names() {
			if g.get(name).Annotations[ownership.HoldAnnotation] == "" {
				t.Errorf("%s is not on hold", name)
			}
		}
	}
	other := of("b-left")
	if _, err := g.ask(g.cluster.Config(), other); !apierrors.IsConflict(err) {
		t.Errorf("undeletion of a dependent whose owner is being undeleted: %v", err)
	}
	g.allow(4)
	g.undelete("a-root", ownership.UndeletionComplete, "a-root Restored", "b-left Restored", "b-right Restored", "c-leaf Restored")
	g.checkRestored(root)
	g.checkRestored(left, "a-root")
	g.checkRestored(right, "a-root")
	g.checkRestored(leaf, "b-left", "b-right")
}

// allow sets a quota for the given number of ConfigMaps, in addition to kube-root-ca.crt.
func (g *grave) allow(room int) {
	g.t.Helper()
	quotas := g.api.CoreV1().ResourceQuotas(shop)
	hard := corev1.ResourceList{"count/configmaps": *resource.NewQuantity(int64(room)+1, resource.DecimalSI)}
	quota, err := quotas.Get(g.t.Context(), "room", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		quota, err = quotas.Create(g.t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "room"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	} else if err == nil {
		quota.Spec.Hard = hard
		quota, err = quotas.Update(g.t.Context(), quota, metav1.UpdateOptions{})
	}
	if err != nil {
		g.t.Fatal(err)
	}
	g.eventually("the quota is counted", func() bool {
		quota, err = quotas.Get(g.t.Context(), "room", metav1.GetOptions{})
		is, counted := quota.Status.Used["count/configmaps"]
		return err == nil && equality.Semantic.DeepEqual(quota.Status.Hard, hard) && counted && is.Value() == int64(len(g.names()))+1
	})
}

// TestUndeleteRefuses: an undeletion that cannot succeed is refused and changes nothing.
func TestUndeleteRefuses(t *testing.T) {
	g := newGrave(t)
	root := g.make("a-root")
	g.make("b-child", root)
	g.make("c-own", root)
	if err := g.api.CoreV1().ConfigMaps(shop).Delete(t.Context(), "a-root", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.eventually("all objects are deleted", func() bool { return len(g.names()) == 0 })
	g.make("b-child")
	s := g.undelete("a-root", ownership.UndeletionRefused, "a-root Pending", "b-child Taken", "c-own Pending")
	if len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0], "ConfigMap shop/b-child cannot be restored: another object has its name, created at ") {
		t.Errorf("problems %q", s.Problems)
	}
	g.delete("b-child", metav1.DeletePropagationBackground)

	jane := g.cluster.Config()
	jane.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:authenticated"}}
	if _, err := g.ask(jane, of("a-root")); !apierrors.IsForbidden(err) {
		t.Errorf("undeletion by a user who may not read the object: %v", err)
	}
	g.let("jane", "get")
	if s, err := g.ask(jane, of("a-root")); err != nil || s.Phase != ownership.UndeletionRefused || !strings.Contains(strings.Join(s.Problems, "\n"), `User "jane" cannot create resource "configmaps"`) {
		t.Errorf("undeletion by a user who may only read: %v, %+v", err, s)
	}
	if got := g.names(); len(got) > 0 {
		t.Errorf("refused, but these objects exist: %v", got)
	}
	if err := g.api.CoreV1().Namespaces().Delete(t.Context(), shop, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.eventually("the namespace is gone", func() bool {
		_, err := g.api.CoreV1().Namespaces().Get(t.Context(), shop, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if s, err := g.ask(g.cluster.Config(), of("a-root")); err != nil || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "namespace shop does not exist") {
		t.Errorf("undeletion in a deleted namespace: %v, %+v", err, s)
	}
}

// TestUndeleteNamespace restores a namespace and the objects that were in it.
func TestUndeleteNamespace(t *testing.T) {
	g := newGrave(t)
	root := g.make("a-root")
	g.make("b-child", root)
	g.eventually("the default service account exists", func() bool {
		_, err := g.api.CoreV1().ServiceAccounts(shop).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	if err := g.api.CoreV1().Namespaces().Delete(t.Context(), shop, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.eventually("the namespace is gone", func() bool {
		_, err := g.api.CoreV1().Namespaces().Get(t.Context(), shop, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	s, err := g.ask(g.cluster.Config(), ownership.UndeletionSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: shop}})
	if err != nil || s.Phase != ownership.UndeletionComplete {
		t.Fatalf("%v: %+v", err, s)
	}
	if got := g.names(); !slices.Equal(got, []string{"a-root", "b-child"}) {
		t.Errorf("restored objects: %v", got)
	}
	if refs := g.get("b-child").OwnerReferences; refs[0].UID != g.get("a-root").UID {
		t.Errorf("owners %+v", refs)
	}
}

// TestDeletionHistory: the history lists requested deletions, not those of the garbage collector.
func TestDeletionHistory(t *testing.T) {
	g := newGrave(t)
	g.make("b-child", g.make("a-root"))
	g.delete("a-root", metav1.DeletePropagationForeground)
	g.make("c-alone")
	g.delete("c-alone", metav1.DeletePropagationBackground)
	g.make("d-again")
	g.delete("d-again", metav1.DeletePropagationBackground)
	g.make("d-again")
	answer, err := review(t, g.cluster.Config(), "deletionhistories", "DeletionHistory", ownership.DeletionHistory{Spec: ownership.DeletionHistorySpec{Namespace: shop}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range answer.Status.Deletions {
		got = append(got, fmt.Sprintf("%s %s %s", d.Object.Name, d.PropagationPolicy, d.By.User))
	}
	if diff := cmp.Diff([]string{"c-alone Background kubernetes-admin", "a-root Foreground kubernetes-admin"}, got); diff != "" || answer.Status.Since == nil {
		t.Errorf("since %v (-want +got):\n%s", answer.Status.Since, diff)
	}
}

// let allows a user verbs on the ConfigMaps of the namespace.
func (g *grave) let(user string, verbs ...string) {
	g.t.Helper()
	grant(g.t, g.api, shop, user, verbs...)
	g.eventually("the permissions are effective", func() bool {
		review, err := g.api.AuthorizationV1().SubjectAccessReviews().Create(g.t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verbs[0], Resource: "configmaps", Namespace: shop},
		}}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	})
}
