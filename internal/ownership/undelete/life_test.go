// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// knows makes the collector observe existing objects.
func (w *world) knows(objects ...*unstructured.Unstructured) {
	known := map[types.UID]graph.Object{}
	for _, o := range objects {
		known[o.GetUID()] = graph.Object{
			Resource: resourceOf(o.GetKind()), Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
			Finalizers: o.GetFinalizers(), Deleting: o.GetDeletionTimestamp() != nil,
		}
	}
	w.cluster.Owner = func(uid types.UID) (graph.Object, bool) { o, there := known[uid]; return o, there }
}

// referring adds an owner reference exactly as given, valid or not.
func referring(kind, name string, uid types.UID) change {
	return func(o *unstructured.Unstructured) {
		r := resourceOf(kind)
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: r.GroupVersion().String(), Kind: kind, Name: name, UID: uid}))
	}
}

// foreground marks an object as being deleted in the foreground.
func foreground(o *unstructured.Unstructured) {
	deleting(o)
	o.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
}

// TestCollectedAtOnce checks that objects that the garbage collector would delete at once, and
// their dependents, are not restored, and that a dry run says so.
func TestCollectedAtOnce(t *testing.T) {
	abroad := object("ConfigMap", "abroad", in("other"))
	home := object("ConfigMap", "home")
	for name, tt := range map[string]struct {
		graph  []*unstructured.Unstructured
		there  []*unstructured.Unstructured
		phase  ownership.UndeletionPhase
		want   []string
		reason string // of the last object
	}{
		"a root whose only owner is in another namespace": {
			[]*unstructured.Unstructured{object("ConfigMap", "root", referring("ConfigMap", "abroad", "abroad"))}, []*unstructured.Unstructured{abroad},
			ownership.UndeletionRefused, []string{"root Left"}, "its owner ConfigMap abroad is in another namespace, "},
		"a root that has another owner": {
			[]*unstructured.Unstructured{object("ConfigMap", "root", referring("ConfigMap", "abroad", "abroad"), referring("ConfigMap", "home", "home"))}, []*unstructured.Unstructured{abroad, home},
			ownership.UndeletionComplete, []string{"root Restored"}, ""},
		"a root whose owner exists": {
			[]*unstructured.Unstructured{object("ConfigMap", "root", referring("ConfigMap", "home", "home"))}, []*unstructured.Unstructured{home},
			ownership.UndeletionComplete, []string{"root Restored"}, ""},
		"a root with a wrong name in its reference": {
			[]*unstructured.Unstructured{object("ConfigMap", "root", referring("ConfigMap", "hone", "home"))}, []*unstructured.Unstructured{home},
			ownership.UndeletionRefused, []string{"root Left"}, "its owner reference to ConfigMap hone does not match that object"},
		"a root whose owner is deleted in the foreground": {
			[]*unstructured.Unstructured{object("ConfigMap", "root", referring("ConfigMap", "going", "going"))}, []*unstructured.Unstructured{object("ConfigMap", "going", foreground)},
			ownership.UndeletionRefused, []string{"root Left"}, "its owner ConfigMap going is being deleted"},
		"a dependent with a wrong name in its reference": {
			[]*unstructured.Unstructured{object("ConfigMap", "root"), object("ConfigMap", "astray", referring("Secret", "root", "root")), object("ConfigMap", "below", referring("ConfigMap", "astray", "astray"))}, nil,
			ownership.UndeletionComplete, []string{"root Restored", "astray Left", "below Left"}, "its owner ConfigMap shop/astray is not restored"},
	} {
		t.Run(name, func(t *testing.T) {
			w := deleted(t, tt.graph, tt.there...)
			w.knows(tt.there...)
			dry := request("ConfigMap", "root")
			dry.DryRun = true
			planned, err := w.cluster.Run(t.Context(), dry)
			if err != nil {
				t.Fatal(err)
			}
			report := w.ends(t, "ConfigMap", "root", tt.phase, tt.want...)
			if got := strings.Join(outcomesOf(planned.Items), ", "); strings.ReplaceAll(got, "Pending", "Restored") != strings.Join(tt.want, ", ") {
				t.Errorf("planned: %s", got)
			}
			last := report.Items[len(report.Items)-1]
			if !strings.HasPrefix(last.Reason, tt.reason) || (last.Reason == "") != (tt.reason == "") {
				t.Errorf("reason %q", last.Reason)
			}
			if refused := tt.phase == ownership.UndeletionRefused; refused != (len(report.Problems) == 1) || refused && len(w.writes()) > 0 {
				t.Errorf("problems %q, writes %v", report.Problems, w.writes())
			}
		})
	}
}

// TestPodsThatWereReplaced checks that a pod is not restored if its controller still exists and has
// replaced it.
func TestPodsThatWereReplaced(t *testing.T) {
	pods := func(n int, changes ...change) (pods []*unstructured.Unstructured) {
		for i := range n {
			pods = append(pods, object("Pod", fmt.Sprint("other-", i), append([]change{ownedBy("set")}, changes...)...))
		}
		return pods
	}
	finished := set([]any{map[string]any{"type": "Complete", "status": "True"}}, "status", "conditions")
	onNode := func(node string) change { return set(node, "spec", "nodeName") }
	for name, tt := range map[string]struct {
		controller *unstructured.Unstructured
		pods       []*unstructured.Unstructured
		change     change
		reason     string
	}{
		"all replicas exist": {object("ReplicaSet", "set", set(int64(2), "spec", "replicas")), pods(2), nil,
			"its controller ReplicaSet set has all its pods (2 of 2) and would delete another one"},
		"fewer":                              {object("ReplicaSet", "set", set(int64(2), "spec", "replicas")), pods(1), nil, ""},
		"replicas that are being deleted":    {object("ReplicaSet", "set", set(int64(1), "spec", "replicas")), pods(1, deleting), nil, ""},
		"replicas that have failed":          {object("ReplicaSet", "set"), pods(1, set("Failed", "status", "phase")), nil, ""},
		"one replica, by default":            {object("ReplicaSet", "set"), pods(1), nil, "its controller ReplicaSet set has all its pods"},
		"a Job":                              {object("Job", "set", set(int64(3), "spec", "parallelism")), pods(3), nil, "its controller Job set has all its pods (3 of 3) "},
		"a finished Job":                     {object("Job", "set", finished), nil, nil, "its controller Job set has finished"},
		"a terminated pod of a finished Job": {object("Job", "set", finished), nil, set("Succeeded", "status", "phase"), ""},
		"a DaemonSet pod on the same node":   {object("DaemonSet", "set"), pods(1, onNode("a")), onNode("a"), "its controller DaemonSet set already has a pod on node a"},
		"a DaemonSet pod on another node":    {object("DaemonSet", "set"), pods(1, onNode("b")), onNode("a"), ""},
		"a controller of an unknown kind":    {object("Thing", "set"), pods(1), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := object("Pod", "pod", ownedBy("set"))
			if tt.change != nil {
				tt.change(pod)
			}
			there := append(slices.Clone(tt.pods), tt.controller)
			nameOwners(append(slices.Clone(there), pod))
			w := deleted(t, []*unstructured.Unstructured{pod}, there...)
			w.knows(there...)
			if tt.reason == "" {
				w.ends(t, "Pod", "pod", ownership.UndeletionComplete, "pod Restored")
				return
			}
			report := w.ends(t, "Pod", "pod", ownership.UndeletionRefused, "pod Left")
			if !strings.HasPrefix(report.Items[0].Reason, tt.reason) || len(report.Problems) != 1 || !strings.HasPrefix(report.Problems[0], "Pod shop/pod would be deleted again at once: its controller ") {
				t.Errorf("reason %q, problems %q", report.Items[0].Reason, report.Problems)
			}
		})
	}
}

// TestSomeReplaced checks that as many pods of an existing ReplicaSet are restored as it lacks.
func TestSomeReplaced(t *testing.T) {
	set := object("ReplicaSet", "set", ownedBy("root"), set(int64(3), "spec", "replicas"))
	graph := []*unstructured.Unstructured{object("Deployment", "root"), set, object("Pod", "a", ownedBy("set")), object("Pod", "b", ownedBy("set")), object("Pod", "c", ownedBy("set"))}
	orphan := set.DeepCopy()
	orphan.SetOwnerReferences(nil)
	w := deleted(t, graph, orphan, object("Pod", "new", ownedBy("set")))
	w.knows(orphan)
	w.ends(t, "Deployment", "root", ownership.UndeletionComplete, "root Restored", "set Adopted", "a Restored", "b Restored", "c Left")
}

// ownDeletion returns the record of a deletion that was requested after that of the root.
func ownDeletion(kind, name, by string) deletion.Record {
	return deletion.Record{Resource: resourceOf(kind).GroupResource(), Namespace: "shop", Name: name, UID: types.UID(name), Revision: 12, By: deletion.Caller{User: by}}
}

func token(account, uid string) change {
	return func(o *unstructured.Unstructured) {
		o.Object["type"] = "kubernetes.io/service-account-token"
		o.SetAnnotations(map[string]string{"kubernetes.io/service-account.name": account, "kubernetes.io/service-account.uid": uid})
	}
}

// TestTokensNeedTheirAccount checks that the token Secret of a ServiceAccount is restored after the
// account and refers to it, or not at all, because the token controller deletes tokens without an
// account.
func TestTokensNeedTheirAccount(t *testing.T) {
	root, account, secret := object("ConfigMap", "root"), object("ServiceAccount", "robot", ownedBy("root")), object("Secret", "a-token", ownedBy("root"), token("robot", "robot"))
	w := deleted(t, []*unstructured.Unstructured{root, secret, account})
	w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored", "robot Restored", "a-token Restored")
	if uid := w.get(t, "Secret", "a-token").GetAnnotations()["kubernetes.io/service-account.uid"]; uid != "new-robot" {
		t.Errorf("the token names the account %q", uid)
	}
	var order []string
	for _, write := range w.writes() {
		if strings.HasPrefix(write, "create") || strings.HasPrefix(write, "patch") {
			order = append(order, write)
		}
	}
	if want := []string{"create configmaps", "create serviceaccounts", "create secrets", "patch secrets", "patch serviceaccounts", "patch configmaps"}; !slices.Equal(order[len(order)-6:], want) {
		t.Errorf("%v", order)
	}

	// The token controller deleted the Secret because its account was deleted with the root.
	w = deleted(t, []*unstructured.Unstructured{root, secret, account})
	w.records = append(w.records, ownDeletion("Secret", "a-token", "system:kube-controller-manager"))
	w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored", "robot Restored", "a-token Restored")

	// The account was deleted on its own.
	w = deleted(t, []*unstructured.Unstructured{root, secret, account})
	w.records = append(w.records, ownDeletion("ServiceAccount", "robot", "jane"))
	report := w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored", "robot Left", "a-token Left")
	if want := "its ServiceAccount shop/robot is not restored, and without it the token controller deletes it"; report.Items[2].Reason != want {
		t.Errorf("reason %q", report.Items[2].Reason)
	}

	// The account is outside of the graph.
	alone := object("Secret", "alone", token("robot", "robot"))
	w = deleted(t, []*unstructured.Unstructured{alone})
	if report := w.ends(t, "Secret", "alone", ownership.UndeletionRefused, "alone Left"); len(report.Problems) != 1 {
		t.Errorf("problems %q", report.Problems)
	}
	w = deleted(t, []*unstructured.Unstructured{alone}, object("ServiceAccount", "robot", withUID("later")))
	w.ends(t, "Secret", "alone", ownership.UndeletionComplete, "alone Restored")
	if uid, found := w.get(t, "Secret", "alone").GetAnnotations()["kubernetes.io/service-account.uid"]; found {
		t.Errorf("the token names the account %q, want the current one", uid)
	}
}

// TestEndpointsFollowTheirService checks that manual Endpoints, which are deleted with their
// Service, are restored after it.
func TestEndpointsFollowTheirService(t *testing.T) {
	graph := []*unstructured.Unstructured{object("ConfigMap", "root"), object("Endpoints", "web", ownedBy("root")), object("Service", "web", ownedBy("root"), withUID("service"))}
	w := deleted(t, graph)
	w.records = append(w.records, ownDeletion("Endpoints", "web", "system:serviceaccount:kube-system:endpoint-controller"))
	report := w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored", "web Restored", "web Restored")
	if report.Items[1].kind() != serviceKind {
		t.Errorf("%s comes first", report.Items[1])
	}
}
