// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

var rsKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

func newPod(name, app string, owner client.Object) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app}}}
	if owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, rsKind)}
	}
	return pod
}

func claimOf(w *controltest.World, rs *appsv1.ReplicaSet) owned.ControllerRefManager[*corev1.Pod] {
	env := w.Env()
	return owned.ControllerRefManager[*corev1.Pod]{
		Controller: rs, Kind: rsKind, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
		Client: env.Client, Live: env.Live, Ledger: owned.NewLedger[*corev1.Pod](w.Seen), Copy: (*corev1.Pod).DeepCopy,
	}
}

func TestClaimFollowsTheControllerRefRules(t *testing.T) {
	ctx := context.Background()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs"}}
	other := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}
	w := controltest.New(t, rs, other)
	dying := newPod("dying-orphan", "web", nil)
	dying.Finalizers = []string{"test/hold"}
	all := []*corev1.Pod{
		newPod("mine", "web", rs), newPod("released", "db", rs), newPod("orphan", "web", nil),
		newPod("stranger", "db", nil), newPod("theirs", "web", other), dying,
	}
	for _, pod := range all {
		w.Must(w.API.Create(ctx, pod))
	}
	w.Must(w.API.Delete(ctx, dying))
	w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(dying), dying))

	claimed, err := claimOf(w, rs).Claim(ctx, all)
	w.Must(err)
	var names []string
	for _, pod := range claimed {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"mine", "orphan"}, names); diff != "" {
		t.Errorf("claimed (-want +got):\n%s", diff)
	}
	owners := map[string]string{}
	for _, pod := range all {
		w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(pod), pod))
		if ref := metav1.GetControllerOf(pod); ref != nil {
			owners[pod.Name] = ref.Name
			if !*ref.BlockOwnerDeletion {
				t.Errorf("%s: blockOwnerDeletion is not set", pod.Name)
			}
		}
	}
	want := map[string]string{"mine": "rs", "orphan": "rs", "theirs": "other"}
	if diff := cmp.Diff(want, owners); diff != "" {
		t.Errorf("controllers (-want +got):\n%s", diff)
	}
}

// The controller's finalizer is added and removed together with the reference, in one write.
func TestClaimAddsAndRemovesFinalizer(t *testing.T) {
	ctx := context.Background()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs"}}
	w := controltest.New(t, rs)
	released, orphan := newPod("released", "db", rs), newPod("orphan", "web", nil)
	released.Finalizers, orphan.Finalizers = []string{"test/mine", "test/other"}, []string{"test/other"}
	writes := 0
	w.Refuse = func(string, client.Object) error { writes++; return nil }
	claim := claimOf(w, rs)
	claim.Finalizer = "test/mine"
	w.Must(w.API.Create(ctx, released))
	w.Must(w.API.Create(ctx, orphan))
	claimed, err := claim.Claim(ctx, []*corev1.Pod{released, orphan})
	w.Must(err)
	if len(claimed) != 1 || len(claimed[0].Finalizers) != 2 || len(claimed[0].OwnerReferences) != 1 {
		t.Errorf("claimed %+v", claimed)
	}
	w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(released), released))
	if diff := cmp.Diff([]string{"test/other"}, released.Finalizers); diff != "" || len(released.OwnerReferences) != 0 || writes != 2 {
		t.Errorf("released with finalizers (-want +got):\n%s\nowners %v, %d writes", diff, released.OwnerReferences, writes)
	}
}

// The controller is deleted in the API, but not in the cache.
func TestClaimAsksTheAPIBeforeItAdopts(t *testing.T) {
	ctx := context.Background()
	for name, kill := range map[string]func(*controltest.World, *appsv1.ReplicaSet){
		"deleted":   func(w *controltest.World, rs *appsv1.ReplicaSet) { w.Must(w.API.Delete(ctx, rs.DeepCopy())) },
		"recreated": func(w *controltest.World, rs *appsv1.ReplicaSet) { rs.UID = "of-old" },
		"terminating": func(w *controltest.World, rs *appsv1.ReplicaSet) {
			held := rs.DeepCopy()
			held.Finalizers = []string{"test/hold"}
			w.Must(w.API.Update(ctx, held))
			w.Must(w.API.Delete(ctx, held))
		},
	} {
		t.Run(name, func(t *testing.T) {
			rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs"}}
			orphan := newPod("orphan", "web", nil)
			w := controltest.New(t, rs, orphan)
			kill(w, rs)
			claimed, _ := claimOf(w, rs).Claim(ctx, []*corev1.Pod{orphan})
			if len(claimed) != 0 {
				t.Error("it adopted a pod")
			}
			w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(orphan), orphan))
			if len(orphan.OwnerReferences) != 0 {
				t.Errorf("the pod got owners %v", orphan.OwnerReferences)
			}
		})
	}
}

// TestClaimDecidesAgain: an orphan that has changed since it was cached is adopted only if it still may be.
func TestClaimDecidesAgain(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		change func(*controltest.World, *corev1.Pod)
		adopts bool
	}{
		"another status": {func(w *controltest.World, p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			w.Must(w.API.Status().Update(ctx, p))
		}, true},
		"other labels": {func(w *controltest.World, p *corev1.Pod) {
			p.Labels = nil
			w.Must(w.API.Update(ctx, p))
		}, false},
		"terminating": {func(w *controltest.World, p *corev1.Pod) {
			p.Finalizers = []string{"test/hold"}
			w.Must(w.API.Update(ctx, p))
			w.Must(w.API.Delete(ctx, p))
		}, false},
		"gone": {func(w *controltest.World, p *corev1.Pod) { w.Must(w.API.Delete(ctx, p)) }, false},
		"another pod": {func(w *controltest.World, p *corev1.Pod) {
			w.Must(w.API.Delete(ctx, p))
			w.Must(w.API.Create(ctx, newPod(p.Name, "web", nil)))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs"}}
			cached := newPod("orphan", "web", nil)
			w := controltest.New(t, rs, cached)
			test.change(w, cached.DeepCopy())
			claimed, err := claimOf(w, rs).Claim(ctx, []*corev1.Pod{cached})
			w.Must(err)
			if adopts := len(claimed) == 1 && metav1.IsControlledBy(claimed[0], rs); adopts != test.adopts || len(claimed) > 1 {
				t.Errorf("claimed %+v", claimed)
			}
		})
	}
}

func TestClaimOfDeletedControllerChangesNothing(t *testing.T) {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs"}}
	w := controltest.New(t, rs)
	rs.DeletionTimestamp = &metav1.Time{Time: controltest.Start}
	w.Refuse = func(verb string, obj client.Object) error {
		t.Errorf("%s %s", verb, obj.GetName())
		return nil
	}
	claimed, err := claimOf(w, rs).Claim(context.Background(), []*corev1.Pod{
		newPod("mine", "web", rs), newPod("released", "db", rs), newPod("orphan", "web", nil)})
	w.Must(err)
	if len(claimed) != 1 || claimed[0].Name != "mine" {
		t.Errorf("claimed %d pods", len(claimed))
	}
}

func TestClaimReportsAFailedAdoption(t *testing.T) {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs"}}
	orphan := newPod("orphan", "web", nil)
	w := controltest.New(t, rs, orphan)
	w.Refuse = func(string, client.Object) error { return errors.New("boom") }
	if claimed, err := claimOf(w, rs).Claim(context.Background(), []*corev1.Pod{orphan}); err == nil || len(claimed) != 0 {
		t.Errorf("claimed %d pods, error %v", len(claimed), err)
	}
}

func TestIgnoreStale(t *testing.T) {
	r := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(r, "x", errors.New("going"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, err := range []error{nil, apierrors.NewConflict(r, "x", nil), apierrors.NewNotFound(r, "x"), terminating} {
		if got := owned.IgnoreStale(err); got != nil {
			t.Errorf("%v is not ignored", err)
		}
	}
	if owned.IgnoreStale(apierrors.NewForbidden(r, "x", errors.New("quota"))) == nil {
		t.Error("a Forbidden error is ignored")
	}
}
