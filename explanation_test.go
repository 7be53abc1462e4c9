// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred"
	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestExplanations creates DeletionExplanations of objects that exist, wait for a finalizer, were
// collected, and were deleted with their namespace.
func TestExplanations(t *testing.T) {
	cluster := startWith(t, kindred.Options{DataDir: t.TempDir(), NoNode: true})
	api := client(t, cluster)
	configMap := func(name string, finalizers []string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
		t.Helper()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Finalizers: finalizers}}
		for _, o := range owners {
			object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID})
		}
		created, err := api.CoreV1().ConfigMaps("shop").Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	if _, err := api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	explain := func(config *rest.Config, name string) (ownership.OwnershipExplanationStatus, error) {
		t.Helper()
		answer, err := review(t, config, "ownershipexplanations", "OwnershipExplanation", ownership.OwnershipExplanation{
			Spec: ownership.OwnershipExplanationSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: name}},
		})
		return answer.Status, err
	}
	// chain checks which kinds of agents deleted an object, the owner because of which it was
	// deleted, and so on up.
	chain := func(name string, state ownership.ObjectState, want ...ownership.AgentKind) ownership.OwnershipExplanationStatus {
		t.Helper()
		var s ownership.OwnershipExplanationStatus
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
			var err error
			if s, err = explain(cluster.Config(), name); err != nil || s.State != state || len(s.Deletions) != len(want) {
				return false, nil
			}
			for i, kind := range want {
				if s.Deletions[i].By.Kind != kind {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil {
			t.Fatalf("%s: %+v, want %s by %v", name, s, state, want)
		}
		return s
	}

	root := configMap("root", nil)
	middle := configMap("middle", nil, root)
	configMap("leaf", nil, middle)
	configMap("held", []string{"example.com/hold"})
	if s, err := explain(cluster.Config(), "leaf"); err != nil || s.State != ownership.StateLiving || len(s.Owners) != 1 || s.Owners[0].Standing != ownership.StandingSolid {
		t.Errorf("an existing object: %+v, %v", s, err)
	}
	for _, name := range []string{"root", "held"} {
		if err := api.CoreV1().ConfigMaps("shop").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gone := chain("leaf", ownership.StateGone, ownership.AgentGarbageCollector, ownership.AgentGarbageCollector, ownership.AgentUser)
	if last := gone.Deletions[2]; last.Object.UID != root.UID || last.By.User != "kubernetes-admin" || last.By.AuditID == "" || last.ResourceVersion != root.ResourceVersion {
		t.Errorf("the root: %+v", last)
	}
	held := chain("held", ownership.StateTerminating, ownership.AgentUser)
	if len(held.WaitsFor) != 1 || held.WaitsFor[0].Finalizer != "example.com/hold" {
		t.Errorf("the deleted object waits for %+v", held.WaitsFor)
	}

	jane := cluster.Config()
	jane.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:authenticated"}}
	for _, name := range []string{"leaf", "held", "never"} {
		if _, err := explain(jane, name); !apierrors.IsForbidden(err) {
			t.Errorf("%s, for a user who may not read it: %v", name, err)
		}
	}
	if _, err := explain(cluster.Config(), "never"); !apierrors.IsNotFound(err) {
		t.Errorf("an object that never existed: %v", err)
	}

	configMap("content", nil)
	if err := api.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	with := chain("content", ownership.StateGone, ownership.AgentController, ownership.AgentUser)
	if space := with.Deletions[1].Object; space.Kind != "Namespace" || space.Name != "shop" {
		t.Errorf("deleted because of %+v", space)
	}
}
