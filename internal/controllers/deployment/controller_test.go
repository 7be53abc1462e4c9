// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "web"}
)

func newDeployment(replicas int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	app := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromString("25%")), MaxUnavailable: ptr.To(intstr.FromString("25%"))},
			},
			Template:                template("v1"),
			RevisionHistoryLimit:    ptr.To[int32](10),
			ProgressDeadlineSeconds: ptr.To[int32](600),
		},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

func recreateStrategy(d *appsv1.Deployment) {
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
}

func TestRollout(t *testing.T) {
	b := newBench(t, newDeployment(3))
	b.step()
	rs := b.sets()[0]
	hash := rs.Labels[hashLabel]
	if rs.Name != "web-"+hash || rs.Spec.Selector.MatchLabels[hashLabel] != hash || rs.Spec.Template.Labels[hashLabel] != hash {
		t.Errorf("ReplicaSet %s with labels %v", rs.Name, rs.Labels)
	}
	want := map[string]string{revisionAnnotation: "1", desiredAnnotation: "3", maxAnnotation: "4"}
	if diff := cmp.Diff(want, rs.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal ScalingReplicaSet Scaled up replica set " + rs.Name + " from 0 to 3"}, b.Events()); diff != "" {
		t.Error(diff)
	}
	b.wantProgress(corev1.ConditionTrue, "NewReplicaSetCreated", `Created new replica set "`+rs.Name+`"`)
	b.follow(rs, 1)
	b.step()
	b.wantProgress(corev1.ConditionTrue, "ReplicaSetUpdated", `ReplicaSet "`+rs.Name+`" is progressing.`)
	b.run()
	b.wantProgress(corev1.ConditionTrue, "NewReplicaSetAvailable", `ReplicaSet "`+rs.Name+`" has successfully progressed.`)
	d := b.deployment()
	if d.Annotations[revisionAnnotation] != "1" || d.Generation != 1 {
		t.Errorf("annotations %v, generation %d", d.Annotations, d.Generation)
	}
	wantStatus := appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
		TerminatingReplicas: ptr.To[int32](0), Conditions: d.Status.Conditions}
	if diff := cmp.Diff(wantStatus, d.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if c := getCondition(&d.Status, appsv1.DeploymentAvailable); c.Status != corev1.ConditionTrue || c.Reason != "MinimumReplicasAvailable" {
		t.Errorf("Available is %+v", c)
	}
}

func TestRollingUpdateSteps(t *testing.T) {
	b := newBench(t, newDeployment(4))
	b.run()
	b.Events()
	b.setImage("v2")
	b.step()
	b.wantShape("v1:3 v2:1")
	sets := b.sets()
	want := []string{
		"Normal ScalingReplicaSet Scaled up replica set " + sets[1].Name + " from 0 to 1",
		"Normal ScalingReplicaSet Scaled down replica set " + sets[0].Name + " from 4 to 3",
	}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Error(diff)
	}
	b.follow(sets[0], 3)
	b.step()
	b.wantShape("v1:3 v2:2")
	b.run()
	b.wantShape("v1:0 v2:4")
	if d := b.deployment(); d.Annotations[revisionAnnotation] != "2" {
		t.Errorf("annotations %v", d.Annotations)
	}
}

// kubectl rollout undo writes an old template; kubectl rollout history reads the annotations.
func TestRollbackKeepsHistory(t *testing.T) {
	const cause = "kubernetes.io/change-cause"
	b := newBench(t, newDeployment(2, func(d *appsv1.Deployment) { d.Annotations = map[string]string{cause: "first"} }))
	b.run()
	b.edit(func(d *appsv1.Deployment) {
		d.Annotations[cause] = "second"
		d.Annotations[corev1.LastAppliedConfigAnnotation] = "private"
		d.Spec.Template.Spec.Containers[0].Image = "v2"
	})
	b.run()
	b.edit(func(d *appsv1.Deployment) {
		d.Annotations[cause] = "first"
		d.Spec.Template.Spec.Containers[0].Image = "v1"
	})
	b.run()
	b.wantShape("v2:0 v1:2")
	sets := b.sets()
	want := map[string]string{revisionAnnotation: "3", historyAnnotation: "1", desiredAnnotation: "2", maxAnnotation: "3", cause: "first"}
	if diff := cmp.Diff(want, sets[1].Annotations); diff != "" {
		t.Errorf("annotations of the newest (-want +got):\n%s", diff)
	}
	if got := sets[0].Annotations[cause]; got != "second" || sets[0].Annotations[revisionAnnotation] != "2" {
		t.Errorf("annotations of the old one: %v", sets[0].Annotations)
	}
	if got := b.deployment().Annotations[revisionAnnotation]; got != "3" {
		t.Errorf("the Deployment has revision %s", got)
	}
}

func TestHistoryIsLimited(t *testing.T) {
	b := newBench(t, newDeployment(1, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](2) }))
	for i := range 6 {
		b.setImage(fmt.Sprint("v", i))
		b.run()
		b.Clock.Step(time.Minute)
	}
	b.wantShape("v3:0 v4:0 v5:1")
	if got := b.deployment().Annotations[revisionAnnotation]; got != "6" {
		t.Errorf("revision %s", got)
	}
}

func TestScalingInTheMiddleOfARolloutIsProportional(t *testing.T) {
	b := newBench(t, newDeployment(10, func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(3)), MaxUnavailable: ptr.To(intstr.FromInt32(2))}
	}))
	b.run()
	b.setImage("broken")
	for range 5 {
		b.step()
		sets := b.sets()
		b.follow(sets[0], size(sets[0]))
		b.follow(sets[1], 0)
	}
	b.wantShape("v1:8 broken:5")
	b.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](15) })
	b.step()
	b.wantShape("v1:11 broken:7")
	for _, rs := range b.sets() {
		if rs.Annotations[desiredAnnotation] != "15" || rs.Annotations[maxAnnotation] != "18" {
			t.Errorf("annotations %v", rs.Annotations)
		}
	}
	// The rollout continues, and waits for the broken pods.
	b.step()
	b.wantShape("v1:11 broken:7")
}

func TestScalingAFinishedRollout(t *testing.T) {
	b := newBench(t, newDeployment(3))
	b.run()
	b.Events()
	b.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](5) })
	b.run()
	b.wantShape("v1:5")
	want := []string{"Normal ScalingReplicaSet Scaled up replica set " + b.sets()[0].Name + " from 3 to 5"}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Error(diff)
	}
}

func TestRecreateWaitsForTheLastOldPod(t *testing.T) {
	b := newBench(t, newDeployment(2, recreateStrategy))
	b.run()
	rs := b.sets()[0]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "old", Labels: rs.Spec.Template.Labels, Finalizers: []string{"test/running"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, replicaSetKind)}}}
	b.Must(b.API.Create(ctx, pod))
	b.setImage("v2")
	b.run()
	b.wantShape("v1:0")
	b.Must(b.API.Delete(ctx, pod))
	b.run()
	b.wantShape("v1:0") // it terminates, but has not ended
	b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	b.Sync()
	if got := b.recreateDeploymentOf(ctx, pod); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("the end of the pod wakes %v", got)
	}
	pod.Finalizers = nil
	b.Must(b.API.Update(ctx, pod))
	b.run()
	b.wantShape("v1:0 v2:2")
}

func TestPauseAndResume(t *testing.T) {
	b := newBench(t, newDeployment(4))
	b.run()
	b.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	b.run()
	b.wantProgress(corev1.ConditionUnknown, "DeploymentPaused", "Deployment is paused")
	b.setImage("v2")
	b.run()
	b.wantShape("v1:4")
	b.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](6) })
	b.run()
	b.wantShape("v1:6") // a paused Deployment can be scaled
	b.Clock.Step(time.Hour)
	b.edit(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	b.step()
	if c := getCondition(&b.deployment().Status, appsv1.DeploymentProgressing); c.Reason == "ProgressDeadlineExceeded" {
		t.Error("the pause counts against the deadline")
	}
	b.run()
	b.wantShape("v1:0 v2:6")
}

func TestProgressDeadline(t *testing.T) {
	b := newBench(t, newDeployment(2))
	result := b.step()
	if result.RequeueAfter != 601*time.Second {
		t.Errorf("requeued after %v", result.RequeueAfter)
	}
	name := b.sets()[0].Name
	b.Clock.Step(600 * time.Second)
	b.step()
	b.wantProgress(corev1.ConditionTrue, "NewReplicaSetCreated", `Created new replica set "`+name+`"`)
	b.Clock.Step(time.Second)
	if result := b.step(); result.RequeueAfter != 0 {
		t.Errorf("timed out, but requeued after %v", result.RequeueAfter)
	}
	b.wantProgress(corev1.ConditionFalse, "ProgressDeadlineExceeded", `ReplicaSet "`+name+`" has timed out progressing.`)
	b.run()
	b.wantProgress(corev1.ConditionTrue, "NewReplicaSetAvailable", `ReplicaSet "`+name+`" has successfully progressed.`)
}

func TestReplicaFailureIsPassedOn(t *testing.T) {
	b := newBench(t, newDeployment(2))
	b.step()
	rs := b.sets()[0]
	rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "exceeded quota"}}
	b.Must(b.API.Status().Update(ctx, rs))
	b.step()
	if c := getCondition(&b.deployment().Status, appsv1.DeploymentReplicaFailure); c == nil || c.Reason != "FailedCreate" || c.Message != "exceeded quota" {
		t.Errorf("ReplicaFailure is %+v", c)
	}
	rs = b.sets()[0]
	rs.Status.Conditions = nil
	b.Must(b.API.Status().Update(ctx, rs))
	b.step()
	if c := getCondition(&b.deployment().Status, appsv1.DeploymentReplicaFailure); c != nil {
		t.Errorf("ReplicaFailure is still %+v", c)
	}
}

func TestRefusedReplicaSetIsReported(t *testing.T) {
	b := newBench(t, newDeployment(2))
	b.Refuse = func(verb string, _ client.Object) error {
		if verb == "create" {
			return errors.New("webhook says no")
		}
		return nil
	}
	if _, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err == nil {
		t.Error("no error, so the request is not retried")
	}
	name := newReplicaSet(b.deployment()).Name
	b.wantProgress(corev1.ConditionFalse, "ReplicaSetCreateError", `Failed to create new replica set "`+name+`": webhook says no`)
	if events := b.Events(); len(events) != 1 || events[0] != `Warning ReplicaSetCreateError Failed to create new replica set "`+name+`": webhook says no` {
		t.Errorf("events %q", events)
	}
}

func TestHashCollisionChangesName(t *testing.T) {
	d := newDeployment(1)
	squatter := newReplicaSet(d)
	squatter.OwnerReferences = nil
	squatter.Labels, squatter.Spec.Selector.MatchLabels = map[string]string{"other": "app"}, map[string]string{"other": "app"}
	b := newBench(t, d, squatter)
	b.run()
	if got := b.deployment().Status.CollisionCount; got == nil || *got != 1 {
		t.Errorf("collision count %v", got)
	}
	if sets := b.sets(); len(sets) != 2 || sets[1].Name == squatter.Name || !strings.HasPrefix(sets[1].Name, "web-") {
		t.Errorf("ReplicaSets %q", b.shape())
	}
}

// After a restart, a ReplicaSet may exist that neither the cache nor the ledger has.
func TestUncachedReplicaSetIsReused(t *testing.T) {
	b := newBench(t, newDeployment(3))
	b.step()
	restarted := newReconciler(b.Env(), b.Seen) // the cache is still stale
	if _, err := restarted.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if d := b.deployment(); len(b.sets()) != 1 || d.Status.CollisionCount != nil {
		t.Errorf("ReplicaSets %q, collision count %v", b.shape(), d.Status.CollisionCount)
	}
	b.run()
	b.wantShape("v1:3")
}

func TestEmptySelectorIsRefused(t *testing.T) {
	b := newBench(t, newDeployment(1, func(d *appsv1.Deployment) { d.Spec.Selector = &metav1.LabelSelector{} }))
	b.step()
	want := []string{"Warning SelectingAll This deployment is selecting all pods. A non-empty selector is required."}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Error(diff)
	}
	if len(b.sets()) != 0 || b.deployment().Status.ObservedGeneration != 1 {
		t.Errorf("ReplicaSets %q", b.shape())
	}
}

func TestDeletedDeploymentUpdatesOnlyStatus(t *testing.T) {
	b := newBench(t, newDeployment(2, func(d *appsv1.Deployment) { d.Finalizers = []string{"foregroundDeletion"} }))
	b.run()
	b.setImage("v2")
	b.Must(b.API.Delete(ctx, b.deployment()))
	b.run()
	b.wantShape("v1:2")
	if d := b.deployment(); d.Status.ObservedGeneration != d.Generation {
		t.Errorf("observed generation %d of %d", d.Status.ObservedGeneration, d.Generation)
	}
}

// A hold is copied neither to a ReplicaSet in a rollout nor to the Deployment in a rollback.
func TestHoldIsNotCopied(t *testing.T) {
	d := newDeployment(1, func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{"team": "a", ownership.HoldAnnotation: "deployment"}
	})
	rs := newReplicaSet(d)
	annotateNewest(rs, d, nil)
	if _, handedOn := rs.Annotations[ownership.HoldAnnotation]; handedOn || rs.Annotations["team"] != "a" {
		t.Errorf("the ReplicaSet has %v", rs.Annotations)
	}
	b := newBench(t, newDeployment(1))
	b.run()
	b.setImage("v2")
	b.run()
	old := b.sets()[0]
	old.Annotations[ownership.HoldAnnotation] = "replicaset"
	b.Must(b.API.Update(ctx, old))
	b.edit(func(d *appsv1.Deployment) { d.Annotations[appsv1.DeprecatedRollbackTo] = "1" })
	b.run()
	b.wantShape("v2:0 v1:1")
	if _, handedOn := b.deployment().Annotations[ownership.HoldAnnotation]; handedOn {
		t.Errorf("the Deployment has %v", b.deployment().Annotations)
	}
}

func TestTheRollbackAnnotation(t *testing.T) {
	for _, tc := range []struct{ to, wantShape, wantEvent string }{
		{"0", "v2:0 v1:1", `Normal DeploymentRollback Rolled back deployment "web" to revision 1`},
		{"1", "v2:0 v1:1", `Normal DeploymentRollback Rolled back deployment "web" to revision 1`},
		{"2", "v1:0 v2:1", `Warning DeploymentRollbackTemplateUnchanged The rollback revision contains the same template as current deployment "web"`},
		{"7", "v1:0 v2:1", `Warning DeploymentRollbackRevisionNotFound Unable to find the revision to rollback to.`},
	} {
		b := newBench(t, newDeployment(1))
		b.run()
		b.setImage("v2")
		b.run()
		b.Events()
		b.edit(func(d *appsv1.Deployment) { d.Annotations[appsv1.DeprecatedRollbackTo] = tc.to })
		b.run()
		b.wantShape(tc.wantShape)
		if events := b.Events(); !slices.Contains(events, tc.wantEvent) {
			t.Errorf("to %s: events %q", tc.to, events)
		}
		if _, left := b.deployment().Annotations[appsv1.DeprecatedRollbackTo]; left {
			t.Errorf("to %s: the annotation was not removed", tc.to)
		}
	}
}

// TestRandomWalk edits a Deployment at random, with a stale cache, writes of other clients and
// failing requests. In the end there must be one active ReplicaSet, with the right template and
// size, and the status must agree with it.
func TestRandomWalk(t *testing.T) {
	for seed := range int64(12) {
		rng := rand.New(rand.NewSource(seed))
		b := newBench(t, newDeployment(int32(1+rng.Intn(8))))
		flaky := false
		b.Refuse = func(verb string, obj client.Object) error {
			switch {
			case !flaky || rng.Intn(4) != 0:
				return nil
			case rng.Intn(2) == 0:
				return apierrors.NewConflict(appsv1.Resource("replicasets"), obj.GetName(), errors.New("changed"))
			default:
				return errors.New("the API is in a mood")
			}
		}
		for range 60 {
			switch rng.Intn(8) {
			case 0:
				b.setImage(fmt.Sprint("v", rng.Intn(3)))
			case 1:
				if rng.Intn(3) == 0 {
					b.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(rng.Intn(8))) })
				}
			case 2, 3:
				b.Sync()
			case 4:
				if sets := b.sets(); len(sets) > 0 {
					rs := sets[rng.Intn(len(sets))]
					b.follow(rs, int32(rng.Intn(int(size(rs))+1)))
				}
			default:
				_, _ = b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
			}
			flaky = rng.Intn(3) == 0
		}
		flaky = false
		b.run()
		d, live := b.deployment(), 0
		for _, rs := range b.sets() {
			if size(rs) == 0 {
				continue
			}
			live++
			if size(rs) != desired(d) || rs.Spec.Template.Spec.Containers[0].Image != d.Spec.Template.Spec.Containers[0].Image {
				t.Errorf("seed %d: %d replicas of %s wanted, ReplicaSets are %q", seed, desired(d), d.Spec.Template.Spec.Containers[0].Image, b.shape())
			}
		}
		if live != 1 && desired(d) != 0 {
			t.Errorf("seed %d: ReplicaSets are %q", seed, b.shape())
		}
		if !complete(d, &d.Status) {
			t.Errorf("seed %d: not complete: %+v", seed, d.Status)
		}
	}
}

// TestDeletedOwner: nothing is created for a Deployment that is deleted, but still cached.
func TestDeletedOwner(t *testing.T) {
	b := newBench(t, newDeployment(3))
	b.Must(b.API.Delete(ctx, newDeployment(3)))
	_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	b.Must(client.IgnoreNotFound(err)) // the status
	if n := len(b.sets()); n != 0 {
		t.Errorf("%d ReplicaSets", n)
	}
}
