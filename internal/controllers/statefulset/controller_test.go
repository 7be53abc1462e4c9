// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func TestFirstPod(t *testing.T) {
	b := newBench(t, newSet(2, withClaims, func(set *appsv1.StatefulSet) {
		set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "cache"}}
		set.Spec.Template.Spec.Hostname = "overwritten"
	}))
	set := b.settle()
	pod := b.pod("web-0")
	if owner := metav1.NewControllerRef(set, kind); len(pod.OwnerReferences) != 1 || cmp.Diff(*owner, pod.OwnerReferences[0]) != "" {
		t.Errorf("owners %+v", pod.OwnerReferences)
	}
	wantLabels := map[string]string{"app": "web", "statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0", "controller-revision-hash": set.Status.UpdateRevision}
	if diff := cmp.Diff(wantLabels, pod.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if pod.Spec.Hostname != "web-0" || pod.Spec.Subdomain != "nodes" {
		t.Errorf("hostname %q, subdomain %q", pod.Spec.Hostname, pod.Spec.Subdomain)
	}
	var volumes []string
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
		if v.PersistentVolumeClaim != nil {
			volumes = append(volumes, v.PersistentVolumeClaim.ClaimName)
		}
	}
	if diff := cmp.Diff([]string{"data", "data-web-0", "log", "log-web-0", "cache"}, volumes); diff != "" {
		t.Errorf("volumes and claims (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"own": "label", "app": "web"}, b.claim("data-web-0").Labels); diff != "" {
		t.Errorf("labels of a claim (-want +got):\n%s", diff)
	}
	want := []string{
		"Normal SuccessfulCreate Create Claim data-web-0 Pod web-0 in StatefulSet web success",
		"Normal SuccessfulCreate Create Claim log-web-0 Pod web-0 in StatefulSet web success",
		"Normal SuccessfulCreate Create Pod web-0 in StatefulSet web successful",
	}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestLife(t *testing.T) {
	b := newBench(t, newSet(3))
	set := b.run()
	first := set.Status.UpdateRevision
	wantStatus := appsv1.StatefulSetStatus{
		ObservedGeneration: 1, Replicas: 3, ReadyReplicas: 3, AvailableReplicas: 3, CurrentReplicas: 3, UpdatedReplicas: 3,
		CurrentRevision: first, UpdateRevision: first,
	}
	if diff := cmp.Diff(wantStatus, set.Status); diff != "" {
		t.Errorf("status after the start (-want +got):\n%s", diff)
	}
	b.edit(image("v2"))
	b.edit(partition(1))
	set = b.run()
	second := set.Status.UpdateRevision
	if got, want := b.images(), "0:v1 1:v2 2:v2"; got != want || set.Status.CurrentRevision != first || set.Status.UpdatedReplicas != 2 || set.Status.CurrentReplicas != 1 {
		t.Errorf("at the partition: %s, want %s; status %+v", got, want, set.Status)
	}
	// A pod below the partition is replaced at its revision.
	b.Must(b.API.Delete(ctx, b.pod("web-0")))
	b.run()
	if got, want := b.images(), "0:v1 1:v2 2:v2"; got != want {
		t.Errorf("after a deletion below the partition: %s, want %s", got, want)
	}
	b.edit(partition(0))
	set = b.run()
	if got, want := b.images(), "0:v2 1:v2 2:v2"; got != want || set.Status.CurrentRevision != second {
		t.Errorf("after the update: %s, want %s; status %+v", got, want, set.Status)
	}
	// Rolled back, the first revision becomes the newest one.
	b.edit(image("v1"))
	set = b.run()
	if got, want := b.images(), "0:v1 1:v1 2:v1"; got != want || set.Status.UpdateRevision != first {
		t.Errorf("after the rollback: %s, want %s; revision %s, want %s", got, want, set.Status.UpdateRevision, first)
	}
	if diff := cmp.Diff([]string{second, first}, b.revisionNames()); diff != "" {
		t.Errorf("revisions (-want +got):\n%s", diff)
	}
	b.edit(replicas(1))
	if b.run(); b.images() != "0:v1" {
		t.Errorf("scaled down to %s", b.images())
	}
}

// TestHistoryLimit: revisions beyond the limit are deleted, except for those in use.
func TestHistoryLimit(t *testing.T) {
	b := newBench(t, newSet(1, onDelete, func(set *appsv1.StatefulSet) { set.Spec.RevisionHistoryLimit = new(int32(1)) }))
	inUse := b.run().Status.UpdateRevision
	for _, name := range []string{"v2", "v3", "v4"} {
		b.edit(image(name))
		b.run()
	}
	if got := b.revisionNames(); len(got) != 3 || got[0] != inUse {
		t.Errorf("revisions %q; want that of the pod (%s), one more, and the newest", got, inUse)
	}
}

// TestRevisionInAnotherEncoding: a revision that another server wrote holds the same template, so
// that no pod is replaced.
func TestRevisionInAnotherEncoding(t *testing.T) {
	set := newSet(1)
	b := newBench(t, set, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-moved", Labels: map[string]string{"app": "web"}},
		Revision:   4,
		Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"finalizers":["test/running"],` +
			`"labels":{"app":"web"}},"spec":{"containers":[{"image":"v1","name":"c","resources":{}}]}}}}`)},
	})
	if got := b.run().Status.UpdateRevision; got != "web-moved" || len(b.revisionNames()) != 1 {
		t.Errorf("update revision %s of %q", got, b.revisionNames())
	}
}

// TestCollision: an object with the name of the new revision makes the StatefulSet use another one.
func TestCollision(t *testing.T) {
	b := newBench(t, newSet(1))
	name := b.run().Status.UpdateRevision
	taken := newBench(t, newSet(1), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
	if _, err := taken.reconcile(); err == nil {
		t.Error("no error, so no retry")
	}
	set := taken.run()
	if set.Status.UpdateRevision == name || set.Status.CollisionCount == nil || *set.Status.CollisionCount != 1 {
		t.Errorf("status %+v", set.Status)
	}
}

func TestAdoption(t *testing.T) {
	orphan := func(name, app string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app}}}
	}
	b := newBench(t, newSet(2, parallel), orphan("web-1", "web"), orphan("other-0", "web"), orphan("web-7", "db"))
	b.settle()
	owners := map[string]bool{}
	for _, pod := range b.pods() {
		owners[pod.Name] = metav1.GetControllerOf(pod) != nil
	}
	if diff := cmp.Diff(map[string]bool{"web-0": true, "web-1": true, "other-0": false, "web-7": false}, owners); diff != "" {
		t.Errorf("pods, and whether they have a controller (-want +got):\n%s", diff)
	}
	if pod := b.pod("web-1"); pod.Labels[appsv1.StatefulSetPodNameLabel] != "web-1" || pod.Labels[appsv1.PodIndexLabel] != "1" {
		t.Errorf("labels of the adopted pod: %v", pod.Labels)
	}
	pod := b.pod("web-0")
	pod.Labels["app"] = "debug"
	b.Must(b.API.Update(ctx, pod))
	_, err := b.reconcile()
	if pod := b.pod("web-0"); metav1.GetControllerOf(pod) != nil || !apierrors.IsAlreadyExists(err) {
		t.Errorf("a pod that is not selected any more has %v; its name is taken: %v", pod.OwnerReferences, err)
	}
}

// TestTerminatingClaim: a pod is created after its claims, so it waits for one that is being deleted.
func TestTerminatingClaim(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-web-0", Finalizers: []string{"kubernetes.io/pvc-protection"}}}
	b := newBench(t, newSet(1, withClaims), claim)
	b.Must(b.API.Delete(ctx, claim))
	if _, err := b.reconcile(); err == nil || !strings.Contains(err.Error(), "pvc data-web-0 is being deleted") || len(b.pods()) != 0 {
		t.Errorf("error %v, %d pods", err, len(b.pods()))
	}
	claim = b.claim("data-web-0")
	claim.Finalizers = nil
	b.Must(b.API.Update(ctx, claim))
	b.run()
	if len(b.pods()) != 1 || b.claim("data-web-0").UID == claim.UID {
		t.Error("the claim and the pod are not created anew")
	}
	if got := b.claimants(ctx, claim); len(got) != 1 || got[0].Name != "web" {
		t.Errorf("the deletion of the claim requeues %v", got)
	}
	if got := b.claimants(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-web2-0"}}); len(got) != 0 {
		t.Errorf("the deletion of another's claim requeues %v", got)
	}
}

// TestClaimOfPendingPod: a claim that disappears before its pod runs is created again.
func TestClaimOfPendingPod(t *testing.T) {
	b := newBench(t, newSet(1, withClaims))
	b.settle()
	pod := b.pod("web-0")
	pod.Status.Phase = corev1.PodPending
	b.Must(b.API.Status().Update(ctx, pod))
	b.Must(b.API.Delete(ctx, b.claim("log-web-0")))
	b.settle()
	b.claim("log-web-0")
}

// TestScaledClaims: with whenScaled Delete, a claim belongs to its surplus pod, so that both go, and
// a new pod waits until the collector has deleted the claim of the old one.
func TestScaledClaims(t *testing.T) {
	b := newBench(t, newSet(2, withClaims, func(set *appsv1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
	}))
	set := b.run()
	if claim := b.claim("data-web-1"); !metav1.IsControlledBy(claim, set) {
		t.Errorf("owners before scaling %v", claim.OwnerReferences)
	}
	pod := b.pod("web-1")
	b.edit(replicas(1))
	b.run()
	claim := b.claim("data-web-1")
	if !metav1.IsControlledBy(claim, pod) || len(claim.OwnerReferences) != 1 {
		t.Errorf("owners after scaling %v", claim.OwnerReferences)
	}
	b.edit(replicas(2))
	if b.run(); len(b.pods()) != 1 {
		t.Error("a new pod has the claim of the old one, which is about to be collected")
	}
	for _, name := range []string{"data-web-1", "log-web-1"} {
		b.Must(b.API.Delete(ctx, b.claim(name)))
	}
	if b.run(); len(b.pods()) != 2 {
		t.Error("no new pod after its claims have gone")
	}
}

func TestConflictingController(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-web-0", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other", Controller: new(true)},
	}}}
	b := newBench(t, newSet(1, withClaims, func(set *appsv1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		}
	}), claim)
	b.run()
	if refs := b.claim("data-web-0").OwnerReferences; len(refs) != 1 || refs[0].Name != "other" {
		t.Errorf("owners %v", refs)
	}
	if !slices.ContainsFunc(b.Events(), func(e string) bool { return strings.HasPrefix(e, "Warning ConflictingController ") }) {
		t.Error("no event")
	}
}

func TestRefusedPod(t *testing.T) {
	b := newBench(t, newSet(3, parallel))
	b.Refuse = func(verb string, obj client.Object) error {
		if _, isPod := obj.(*corev1.Pod); isPod && verb == "create" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, obj.GetName(), errors.New("exceeded quota: two"))
		}
		return nil
	}
	if _, err := b.reconcile(); err == nil {
		t.Error("no error, so no retry")
	}
	if got := b.read().Status; got.ObservedGeneration != 1 || got.UpdateRevision == "" {
		t.Errorf("the status is not written: %+v", got)
	}
	want := `Warning FailedCreate Create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden: exceeded quota: two`
	if diff := cmp.Diff([]string{want}, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestCacheThatLags: without a newer cache, a second pass does nothing twice.
func TestCacheThatLags(t *testing.T) {
	b := newBench(t, newSet(2, parallel, withClaims))
	b.Sync()
	for range 2 {
		_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		b.Must(err)
	}
	created := 0
	for _, e := range b.Events() {
		if strings.HasPrefix(e, "Normal SuccessfulCreate Create Pod") {
			created++
		}
	}
	if created != 2 {
		t.Errorf("%d pods were created, want 2", created)
	}
}

func TestHeldSetIsLeftAlone(t *testing.T) {
	b := newBench(t, newSet(1, func(set *appsv1.StatefulSet) {
		set.Annotations = map[string]string{ownership.HoldAnnotation: ""}
	}))
	if b.settle(); len(b.pods()) != 0 || len(b.revisionNames()) != 0 {
		t.Errorf("pods %v, revisions %v", b.pods(), b.revisionNames())
	}
}

// TestTerminatingSet: a StatefulSet that is being deleted creates nothing and reports its pods.
func TestTerminatingSet(t *testing.T) {
	b := newBench(t, newSet(2, func(set *appsv1.StatefulSet) { set.Finalizers = []string{"foregroundDeletion"} }))
	b.run()
	b.Must(b.API.Delete(ctx, b.read()))
	pod := b.pod("web-1")
	b.Must(b.API.Delete(ctx, pod))
	b.advance(b.pod("web-1"))
	if set := b.run(); set.Status.Replicas != 1 || len(b.pods()) != 1 {
		t.Errorf("%d pods, status %+v", len(b.pods()), set.Status)
	}
}

func TestMinReadySeconds(t *testing.T) {
	b := newBench(t, newSet(2, minReady(10)))
	b.run()
	b.Clock.Step(4 * time.Second)
	result, err := b.reconcile()
	b.Must(err)
	if result.RequeueAfter != 6*time.Second || len(b.pods()) != 1 {
		t.Errorf("requeued after %v with %d pods", result.RequeueAfter, len(b.pods()))
	}
	b.Clock.Step(6 * time.Second)
	if b.run(); len(b.pods()) != 2 {
		t.Error("no second pod after the first is available")
	}
}

// TestDeletedOwner: nothing is created for a StatefulSet that is deleted, but still cached.
func TestDeletedOwner(t *testing.T) {
	b := newBench(t, newSet(3))
	b.Must(b.API.Delete(ctx, b.read()))
	_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	b.Must(client.IgnoreNotFound(err)) // the status
	if n := len(b.pods()); n != 0 {
		t.Errorf("%d pods", n)
	}
}
