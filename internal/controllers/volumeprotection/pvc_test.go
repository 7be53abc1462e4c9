// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeprotection

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var claimKey = client.ObjectKey{Namespace: "app", Name: "c"}

// claim returns the claim that the pods below use.
func claim(finalizers ...string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "c", Finalizers: finalizers}}
}

func pod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
	}}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func unbound(p *corev1.Pod) { p.Spec.NodeName = "" }
func ended(p *corev1.Pod)   { p.Status.Phase = corev1.PodSucceeded }
func deleted(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(controltest.Start)) }
func running(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}
func shutDown(p *corev1.Pod) { deleted(p); p.DeletionGracePeriodSeconds = new(int64(0)) }
func madeForIt(p *corev1.Pod) {
	p.UID = "uid-p"
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
}

func TestClaimUsers(t *testing.T) {
	own := claim()
	own.Name = "p-v"
	own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "uid-p", Controller: new(true)}}
	stolen := claim()
	stolen.Name = "p-v"
	other := claim()
	other.Name = "d"
	for _, test := range []struct {
		name           string
		pod            *corev1.Pod
		claim          *corev1.PersistentVolumeClaim
		blocks, refers bool
	}{
		{"on a node", pod(), claim(), true, true},
		{"another claim", pod(), other, false, false},
		{"not on a node yet", pod(unbound), claim(), false, true},
		{"ended, volumes may still be mounted", pod(ended), claim(), true, false},
		{"being deleted", pod(deleted, running), claim(), true, true},
		{"being deleted, no container runs", pod(deleted), claim(), true, false},
		{"shut down", pod(shutDown), claim(), true, false},
		{"made for the pod", pod(madeForIt), own, true, true},
		{"made for the pod, which is shut down", pod(madeForIt, shutDown), own, false, false},
		{"same name, but not made for the pod", pod(madeForIt), stolen, false, false},
	} {
		if got := blocks(test.pod, test.claim); got != test.blocks {
			t.Errorf("%s: blocks %v", test.name, got)
		}
		if got := refers(test.pod, test.claim); got != test.refers {
			t.Errorf("%s: refers %v", test.name, got)
		}
	}
}

func reconcileClaim(t *testing.T, w *controltest.World) *corev1.PersistentVolumeClaim {
	t.Helper()
	if _, err := newClaimProtector(w.Env()).Reconcile(t.Context(), ctrl.Request{NamespacedName: claimKey}); err != nil {
		t.Fatal(err)
	}
	got := &corev1.PersistentVolumeClaim{}
	if err := w.API.Get(t.Context(), claimKey, got); apierrors.IsNotFound(err) {
		return nil
	}
	return got
}

func TestClaimFinalizer(t *testing.T) {
	w := controltest.New(t, claim())
	if got := reconcileClaim(t, w); !slices.Equal(got.Finalizers, []string{claimFinalizer}) {
		t.Errorf("older object: %q", got.Finalizers)
	}
	c := claim(claimFinalizer)
	w = controltest.New(t, c)
	w.Must(w.API.Delete(t.Context(), c))
	w.Sync()
	// The cache does not have the pod yet.
	w.Must(w.API.Create(t.Context(), pod()))
	if reconcileClaim(t, w) == nil {
		t.Fatal("removed, although a pod uses it")
	}
	w.Sync()
	if reconcileClaim(t, w) == nil {
		t.Fatal("removed, although a pod in the cache uses it")
	}
	w.Must(w.API.Delete(t.Context(), pod()))
	w.Sync()
	if got := reconcileClaim(t, w); got != nil {
		t.Fatalf("not removed: %v", got)
	}
}

func TestClaimUnusedCondition(t *testing.T) {
	c := claim(claimFinalizer)
	c.Status.Phase = corev1.ClaimBound
	w := controltest.New(t, c, func() client.Object { p := claim(claimFinalizer); p.Name = "pending"; return p }())
	step := func(what string, status corev1.ConditionStatus, reason, message string) {
		t.Helper()
		want := []corev1.PersistentVolumeClaimCondition{{Type: "Unused", Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(w.Clock.Now())}}
		for range 2 {
			w.Sync()
			got := reconcileClaim(t, w).Status.Conditions
			for i := range got {
				got[i].LastTransitionTime = metav1.NewTime(got[i].LastTransitionTime.UTC())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
			w.Clock.Step(time.Minute)
		}
	}
	const unused, used = "No pods are currently referencing this PVC", "A pod is currently referencing this PVC"
	step("bound", corev1.ConditionTrue, "NoPodsUsingPVC", unused)
	w.Must(w.API.Create(t.Context(), pod(unbound)))
	step("a pod", corev1.ConditionFalse, "PodUsingPVC", used)
	w.Must(w.API.Delete(t.Context(), pod()))
	step("no pod", corev1.ConditionTrue, "NoPodsUsingPVC", unused)

	if _, err := newClaimProtector(w.Env()).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "app", Name: "pending"}}); err != nil {
		t.Fatal(err)
	}
	pending := claim()
	w.Must(w.API.Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "pending"}, pending))
	if len(pending.Status.Conditions) != 0 {
		t.Errorf("not bound yet: %v", pending.Status.Conditions)
	}
}

// Claims that are pending together share one list of pods, and the next pass lists again.
// Claims that failed stay pending.
func TestClaimsShareAList(t *testing.T) {
	w := controltest.New(t)
	var all []*corev1.PersistentVolumeClaim
	for _, name := range []string{"c", "d", "e"} {
		c := claim(claimFinalizer)
		c.Name = name
		w.Must(w.API.Create(t.Context(), c))
		w.Must(w.API.Delete(t.Context(), c))
		all = append(all, c)
	}
	w.Sync()
	lists, fails := 0, true
	env := w.Env()
	env.Live = interceptor.NewClient(w.API, interceptor.Funcs{List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if lists++; fails {
			return errors.New("not now")
		}
		return api.List(ctx, list, opts...)
	}})
	r := &claimReconciler{env: env}
	request := r.pending.add("app", "c", "d", "e")[0]
	if _, err := r.Reconcile(t.Context(), request); err == nil {
		t.Error("no error")
	}
	// The cache does not have the pod of one claim yet.
	w.Must(w.API.Create(t.Context(), pod()))
	lists, fails = 0, false
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if lists != 1 {
		t.Errorf("%d lists", lists)
	}
	for _, c := range all {
		if gone := apierrors.IsNotFound(w.API.Get(t.Context(), client.ObjectKeyFromObject(c), claim())); gone == (c.Name == "c") {
			t.Errorf("%s is removed: %v", c.Name, gone)
		}
	}
	w.Must(w.API.Delete(t.Context(), pod()))
	r.pending.add("app", "c")
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if err := w.API.Get(t.Context(), claimKey, claim()); !apierrors.IsNotFound(err) {
		t.Errorf("checked against a stale list: %v", err)
	}
}

func TestClaimIsRemovedWithItsLastPod(t *testing.T) {
	c, p := claim(claimFinalizer), pod()
	w := controltest.New(t, c, p)
	w.Run(t, control.Controller{Name: ClaimName, Add: AddClaims})
	w.Must(w.API.Delete(t.Context(), c))
	time.Sleep(20 * time.Millisecond)
	if err := w.API.Get(t.Context(), claimKey, claim()); err != nil {
		t.Fatalf("removed, although a pod uses it: %v", err)
	}
	w.Must(w.API.Delete(t.Context(), p))
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if apierrors.IsNotFound(w.API.Get(t.Context(), claimKey, claim())) {
			return
		}
	}
	t.Fatal("the claim was not removed")
}
