// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
)

// deleted returns a cluster in which a graph, with its root first, was deleted at revision 11.
func deleted(t *testing.T, graph []*unstructured.Unstructured, there ...*unstructured.Unstructured) *world {
	t.Helper()
	root := graph[0]
	nameOwners(append(slices.Clone(graph), there...))
	w := newWorld(t, &memory{
		objects: map[int64][]*unstructured.Unstructured{10: graph},
		records: []deletion.Record{{Resource: resourceOf(root.GetKind()).GroupResource(), Namespace: "shop", Name: root.GetName(), UID: root.GetUID(), Revision: 11}},
	}, append(there, object("Namespace", "shop"))...)
	w.on("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		o := create.Object.(*unstructured.Unstructured)
		if len(create.CreateOptions.DryRun) > 0 {
			return true, o, nil
		}
		o.SetUID(types.UID("new-" + o.GetName()))
		return false, nil, nil
	})
	return w
}

// nameOwners completes references between the objects; ownedBy sets only their UID.
func nameOwners(objects []*unstructured.Unstructured) {
	for _, object := range objects {
		refs := object.GetOwnerReferences()
		for i := range refs {
			for _, owner := range objects {
				if owner.GetUID() == refs[i].UID && refs[i].Name == "named-"+string(owner.GetUID()) {
					refs[i].APIVersion, refs[i].Kind, refs[i].Name = owner.GetAPIVersion(), owner.GetKind(), owner.GetName()
				}
			}
		}
		if len(refs) > 0 {
			object.SetOwnerReferences(refs)
		}
	}
}

func (w *world) on(verb, resource string, react clienttesting.ReactionFunc) {
	w.client.PrependReactor(verb, resource, react)
}

// put creates or updates an object as another client would.
func (w *world) put(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	gvr := resourceOf(o.GetKind()).GroupVersionResource
	err := w.client.Tracker().Create(gvr, o, o.GetNamespace())
	if apierrors.IsAlreadyExists(err) {
		err = w.client.Tracker().Update(gvr, o, o.GetNamespace())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) get(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	found, err := w.client.Tracker().Get(resourceOf(kind).GroupVersionResource, "shop", name)
	if err != nil {
		t.Fatal(err)
	}
	return found.(*unstructured.Unstructured)
}

// ends runs an undeletion and checks its phase and outcomes.
func (w *world) ends(t *testing.T, kind, name string, phase ownership.UndeletionPhase, want ...string) *Report {
	t.Helper()
	report, err := w.cluster.Run(t.Context(), request(kind, name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, outcomesOf(report.Items)); diff != "" || report.Phase != phase {
		t.Fatalf("phase %s, problems %q, warnings %q, outcomes:\n%s", report.Phase, report.Problems, report.Warnings, diff)
	}
	return report
}

func isFree(o *unstructured.Unstructured) bool {
	_, held := o.GetAnnotations()[ownership.HoldAnnotation]
	return !held
}

// TestResumeNeedsAccess checks that continuing an undeletion requires the same permissions as
// starting one. Any user can write a mark.
func TestResumeNeedsAccess(t *testing.T) {
	graph := []*unstructured.Unstructured{object("ConfigMap", "root"), object("Secret", "child", ownedBy("root"))}
	for name, tt := range map[string]struct{ forbidden, problem, child string }{
		"may not read":   {"get Secret", "the objects to restore include some that you may not read (1): ask a user who may read them", "Pending"},
		"may not create": {"create Secret", "you may not create Secret", "Denied"},
	} {
		t.Run(name, func(t *testing.T) {
			w := deleted(t, graph, object("ConfigMap", "root", withUID("new"), onHold("root", false)))
			w.forbidden = []string{tt.forbidden}
			report := w.ends(t, "ConfigMap", "root", ownership.UndeletionIncomplete, "root Restored", "child "+tt.child)
			if !slices.Equal(report.Problems, []string{tt.problem}) || len(w.writes()) > 0 {
				t.Errorf("problems %q, writes %v", report.Problems, w.writes())
			}
			w.forbidden = nil
			w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored", "child Restored")
			if !isFree(w.get(t, "ConfigMap", "root")) || !isFree(w.get(t, "Secret", "child")) {
				t.Error("on hold")
			}
		})
	}
}

// TestHiddenBlocker checks that a problem does not name an object that the caller may not read.
func TestHiddenBlocker(t *testing.T) {
	graph := []*unstructured.Unstructured{object("ConfigMap", "root"), object("Secret", "a", ownedBy("root")), object("Secret", "b", ownedBy("root"))}
	w := deleted(t, graph, object("Secret", "a", withUID("other")), object("Secret", "b", deleting))
	w.forbidden = []string{"get Secret"}
	report := w.ends(t, "ConfigMap", "root", ownership.UndeletionRefused, "root Pending", "a Taken", "b Left")
	if !slices.Equal(report.Problems, []string{"an object that you may not read prevents it"}) {
		t.Errorf("problems %q", report.Problems)
	}
	w.forbidden = nil
	if report := w.ends(t, "ConfigMap", "root", ownership.UndeletionRefused, "root Pending", "a Taken", "b Left"); len(report.Problems) != 2 {
		t.Errorf("problems for a caller who may read it: %q", report.Problems)
	}
}

// TestMarkOfAnother checks that a mark whose object differs from the one in the history is refused.
func TestMarkOfAnother(t *testing.T) {
	graph := []*unstructured.Unstructured{object("ConfigMap", "root", withUID("another"))}
	w := deleted(t, graph, object("ConfigMap", "root", withUID("new"), onHold("root", false)))
	if _, err := w.cluster.Run(t.Context(), request("ConfigMap", "root")); !apierrors.IsConflict(err) {
		t.Errorf("%v", err)
	}
}

// TestRootIsTaken creates another object with the name of the root just before it is restored. That
// object stays unchanged, and nothing else is written.
func TestRootIsTaken(t *testing.T) {
	w := deleted(t, []*unstructured.Unstructured{object("ConfigMap", "root"), object("Secret", "child", ownedBy("root"))})
	foreign := object("ConfigMap", "root", withUID("foreign"))
	w.on("create", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) == 0 {
			w.put(t, foreign)
		}
		return false, nil, nil
	})
	report := w.ends(t, "ConfigMap", "root", ownership.UndeletionIncomplete, "root Taken", "child Pending")
	if !slices.Equal(report.Problems, []string{"ConfigMap shop/root cannot be restored: an object of this name was created in the meantime"}) {
		t.Errorf("problems %q", report.Problems)
	}
	if diff := cmp.Diff(foreign.Object, w.get(t, "ConfigMap", "root").Object); diff != "" {
		t.Errorf("the other object:\n%s", diff)
	}
}

// TestReleasedByAnother checks that a request does not put objects on hold again that a concurrent
// request has released.
func TestReleasedByAnother(t *testing.T) {
	w := deleted(t, []*unstructured.Unstructured{object("ConfigMap", "root")})
	released := object("ConfigMap", "root", withUID("new-root"))
	w.on("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.put(t, released)
		return true, nil, apierrors.NewConflict(resourceOf("ConfigMap").GroupResource(), "root", errBroken)
	})
	w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored")
	if diff := cmp.Diff(released.Object, w.get(t, "ConfigMap", "root").Object); diff != "" {
		t.Errorf("the released object:\n%s", diff)
	}
}

// TestReleaseIsRetried checks that a release is retried after a conflict.
func TestReleaseIsRetried(t *testing.T) {
	w := deleted(t, []*unstructured.Unstructured{object("ConfigMap", "root")})
	conflicts := 0
	w.on("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts > 2 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(resourceOf("ConfigMap").GroupResource(), "root", errBroken)
	})
	w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored")
	if !isFree(w.get(t, "ConfigMap", "root")) {
		t.Error("the hold is not removed")
	}
}

// TestEndedPodStaysOnHold checks that a terminated pod is not released before its status is
// written, since it would run again.
func TestEndedPodStaysOnHold(t *testing.T) {
	ended := object("Pod", "pod", ownedBy("root"), set("Succeeded", "status", "phase"))
	w := deleted(t, []*unstructured.Unstructured{object("Job", "root"), ended})
	broken, conflicts := true, 0
	w.on("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		// The API server drops the status of a pod that is created.
		unstructured.RemoveNestedField(action.(clienttesting.CreateActionImpl).Object.(*unstructured.Unstructured).Object, "status")
		return false, nil, nil
	})
	w.on("update", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "status" {
			return false, nil, nil
		}
		if broken {
			return true, nil, errBroken
		}
		if conflicts++; conflicts == 1 {
			return true, nil, apierrors.NewConflict(resourceOf("Pod").GroupResource(), "pod", errBroken)
		}
		return false, nil, nil
	})
	w.ends(t, "Job", "root", ownership.UndeletionIncomplete, "root Restored", "pod Restored")
	if isFree(w.get(t, "Pod", "pod")) {
		t.Error("the pod is released without its status")
	}
	broken = false
	report := w.ends(t, "Job", "root", ownership.UndeletionComplete, "root Restored", "pod Restored")
	if pod := w.get(t, "Pod", "pod"); len(report.Warnings) > 0 || !isFree(pod) || !hasEnded(pod) {
		t.Errorf("warnings %q, %v", report.Warnings, pod.Object)
	}
}

// TestAbandoned checks that dependents of a pod that cannot be created are not restored.
func TestAbandoned(t *testing.T) {
	graph := []*unstructured.Unstructured{object("ReplicaSet", "root"), object("Pod", "pod", ownedBy("root")), object("PersistentVolumeClaim", "claim", ownedBy("pod"))}
	refused := apierrors.NewForbidden(resourceOf("Pod").GroupResource(), "pod", errBroken)
	for _, beforehand := range []bool{true, false} {
		w := deleted(t, graph)
		w.on("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			dry := len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) > 0
			return dry == beforehand, nil, refused
		})
		if beforehand {
			dry := request("ReplicaSet", "root")
			dry.DryRun = true
			if report, err := w.cluster.Run(t.Context(), dry); err != nil || !slices.Equal(outcomesOf(report.Items), []string{"root Pending", "pod Left", "claim Left"}) {
				t.Errorf("%v: %v", err, report)
			}
		}
		report := w.ends(t, "ReplicaSet", "root", ownership.UndeletionComplete, "root Restored", "pod Left", "claim Left")
		if !strings.HasPrefix(report.Items[1].Reason, "it cannot be created (") || report.Items[2].Reason != "its owner Pod shop/pod is not restored" {
			t.Errorf("reasons %q, %q", report.Items[1].Reason, report.Items[2].Reason)
		}
	}

	// An error that may be temporary does not end the undeletion.
	w := deleted(t, graph)
	w.on("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) == 0, nil, apierrors.NewServerTimeout(resourceOf("Pod").GroupResource(), "create", 1)
	})
	w.ends(t, "ReplicaSet", "root", ownership.UndeletionIncomplete, "root Restored", "pod Pending", "claim Restored")
}

// slow returns a cluster in which the undeletion of forty objects takes several requests.
func slow(t *testing.T) *world {
	t.Helper()
	graph := []*unstructured.Unstructured{object("ConfigMap", "root")}
	for i := range 40 {
		graph = append(graph, object("Secret", fmt.Sprintf("s%02d", i), ownedBy("root")))
	}
	w := deleted(t, graph)
	w.on("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.clock.Step(time.Second / 2)
		return false, nil, nil
	})
	return w
}

// TestTimeIsLimited checks that a dry run of very many objects leaves time to create some of them
// in each request.
func TestTimeIsLimited(t *testing.T) {
	w := slow(t)
	restored := 0
	for range 10 {
		report, err := w.cluster.Run(t.Context(), request("ConfigMap", "root"))
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, item := range report.Items {
			if item.Outcome == ownership.UndeletionRestored {
				done++
			}
		}
		if done <= restored && report.Phase != ownership.UndeletionComplete {
			t.Fatalf("no progress: %d objects exist: %s, %q", done, report.Phase, report.Problems)
		}
		if restored = done; report.Phase == ownership.UndeletionComplete {
			break
		}
	}
	if restored != 41 {
		t.Errorf("%d objects are restored", restored)
	}
}

// TestDryRun checks that a dry run writes nothing and returns the plan.
func TestDryRun(t *testing.T) {
	w := deleted(t, []*unstructured.Unstructured{object("ConfigMap", "root"), object("Secret", "child", ownedBy("root"))})
	dry := request("ConfigMap", "root")
	dry.DryRun = true
	report, err := w.cluster.Run(t.Context(), dry)
	if err != nil || report.Phase != ownership.UndeletionPlanned || !slices.Equal(outcomesOf(report.Items), []string{"root Pending", "child Pending"}) {
		t.Errorf("%v: %+v", err, report)
	}
	for _, action := range w.client.Actions() {
		create, creates := action.(clienttesting.CreateActionImpl)
		if creates && !slices.Equal(create.CreateOptions.DryRun, []string{metav1.DryRunAll}) || !creates && !slices.Contains([]string{"get", "list"}, action.GetVerb()) {
			t.Errorf("%+v", action)
		}
	}
}

// TestDeletedAgain checks that an object that is deleted during the release does not keep the
// others on hold.
func TestDeletedAgain(t *testing.T) {
	graph := []*unstructured.Unstructured{object("ConfigMap", "root"), object("Secret", "gone", ownedBy("root")), object("Secret", "going", ownedBy("root")), object("Secret", "held", ownedBy("root"))}
	w := deleted(t, graph, object("ConfigMap", "root", withUID("new"), onHold("root", true)), object("Secret", "going", deleting), object("Secret", "held", withUID("new-held"), onHold("held", false)))
	w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored", "going Left", "gone Left", "held Restored")
	if !isFree(w.get(t, "Secret", "held")) || !isFree(w.get(t, "ConfigMap", "root")) {
		t.Error("on hold")
	}
}

// TestAwaitEndsWithRequest checks that await stops when the time of the request is over.
func TestAwaitEndsWithRequest(t *testing.T) {
	w := newWorld(t, &memory{})
	u := &undeletion{Cluster: w.cluster, until: w.clock.Now().Add(time.Second)}
	looks := 0
	is, err := u.await(t.Context(), func() bool { looks++; w.clock.Step(time.Second / 2); return false })
	if is || err != nil || looks != 2 {
		t.Errorf("%t, %v after %d polls, half a second apart", is, err, looks)
	}
}
