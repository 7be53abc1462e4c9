// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
)

func TestJobCompletes(t *testing.T) {
	b := newBench(t, newJob(workOf(2, 3)))
	job := b.settle()
	want := batchv1.JobStatus{Active: 2, Ready: ptr.To[int32](0), Terminating: ptr.To[int32](0), StartTime: ptr.To(metav1.NewTime(controltest.Start)),
		UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}
	if diff := cmp.Diff(want, job.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	b.Events()
	for range 3 {
		b.terminate(b.live()[0], 0)
		job = b.settle()
	}
	wantConditions := []string{"SuccessCriteriaMet CompletionsReached: Reached expected number of succeeded pods",
		"Complete CompletionsReached: Reached expected number of succeeded pods"}
	if diff := cmp.Diff(wantConditions, trueConditions(job.Status)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if job.Status.Succeeded != 3 || job.Status.CompletionTime == nil || job.Status.Active != 0 || len(b.all()) != 3 {
		t.Errorf("status %+v, %d pods", job.Status, len(b.all()))
	}
	if events := b.Events(); !slices.Contains(events, "Normal Completed Job completed") {
		t.Errorf("events %q", events)
	}
}

func TestFailedJobFailsItsRemainingPods(t *testing.T) {
	b := newBench(t, newJob(workOf(2, 2), limit(0)))
	b.settle()
	b.Events()
	victim := b.live()[1]
	b.terminate(b.live()[0], 1)
	job := b.settle()
	if got := trueConditions(job.Status); !slices.Equal(got, []string{"FailureTarget BackoffLimitExceeded: Job has reached the specified backoff limit"}) {
		t.Errorf("conditions %q while a pod terminates", got)
	}
	if *job.Status.Terminating != 1 || job.Status.Active != 0 || job.Status.Failed != 2 {
		t.Errorf("status %+v, terminating %d", job.Status, *job.Status.Terminating)
	}
	b.removePod(b.get(victim))
	job = b.settle()
	if end := jobs.Finished(job); end == nil || end.Type != batchv1.JobFailed || end.Reason != "BackoffLimitExceeded" || *job.Status.Terminating != 0 {
		t.Errorf("status %+v", job.Status)
	}
	want := []string{"Normal SuccessfulDelete Deleted pod: " + victim.Name, "Warning BackoffLimitExceeded Job has reached the specified backoff limit"}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestSuspendAndResume(t *testing.T) {
	b := newBench(t, newJob(workOf(2, 2)))
	b.settle()
	b.Events()
	b.edit(suspend)
	job := b.settle()
	if got := trueConditions(job.Status); !slices.Equal(got, []string{"Suspended JobSuspended: Job suspended"}) || job.Status.StartTime != nil || job.Status.Active != 0 {
		t.Errorf("%q, status %+v", got, job.Status)
	}
	for _, pod := range b.all() {
		if pod.DeletionTimestamp == nil || isTracked(pod) {
			t.Errorf("pod %s still runs", pod.Name)
		}
	}
	b.Clock.Step(time.Hour)
	b.edit(func(spec *batchv1.JobSpec) { spec.Suspend = ptr.To(false) })
	job = b.settle()
	if c := jobs.Condition(&job.Status, batchv1.JobSuspended); c.Status != corev1.ConditionFalse || c.Reason != "JobResumed" {
		t.Errorf("condition %+v", c)
	}
	if !job.Status.StartTime.Time.Equal(b.Clock.Now()) || job.Status.Active != 2 || job.Status.Failed != 0 {
		t.Errorf("status %+v", job.Status)
	}
	events := strings.Join(b.Events(), "\n")
	for _, want := range []string{"Normal Suspended Job suspended", "Normal Resumed Job resumed"} {
		if strings.Count(events, want) != 1 {
			t.Errorf("want exactly one %q in\n%s", want, events)
		}
	}
}

// A Reconcile counts the pods that it has deleted as terminating, even with a stale cache.
func TestOwnDeletionsAreSeen(t *testing.T) {
	b := newBench(t, newJob(workOf(2, 2), replaceFailed))
	b.settle()
	b.Events()
	b.edit(suspend)
	b.Sync()
	for range 3 {
		_, err := b.reconcile()
		b.Must(err)
		if status := b.job().Status; status.Active != 0 || *status.Terminating != 2 {
			t.Errorf("%d active, %d terminating", status.Active, *status.Terminating)
		}
	}
	if events := b.Events(); len(events) != 3 { // two deletions and the suspension
		t.Errorf("events %q", events)
	}
}

func TestAdoptionAddsAndReleaseRemovesFinalizer(t *testing.T) {
	b := newBench(t, newJob())
	b.settle()
	pod := b.live()[0]
	uid := pod.UID
	pod.OwnerReferences, pod.Finalizers = nil, []string{running}
	b.Must(b.API.Update(ctx, pod))
	b.pass()
	if b.get(pod); !metav1.IsControlledBy(pod, b.job()) || !isTracked(pod) || len(b.all()) != 1 || pod.UID != uid {
		t.Errorf("not adopted: %+v, %d pods", pod.ObjectMeta, len(b.all()))
	}
	pod.Labels = nil
	b.Must(b.API.Update(ctx, pod))
	b.settle()
	if b.get(pod); len(pod.OwnerReferences) != 0 || isTracked(pod) {
		t.Errorf("not released: %+v", pod.ObjectMeta)
	}
	if len(b.all()) != 2 || b.job().Status.Failed != 0 {
		t.Errorf("%d pods, status %+v", len(b.all()), b.job().Status)
	}
}

// A surplus pod that has just ended counts, and is not deleted.
func TestEndedPodIsNotDropped(t *testing.T) {
	b := newBench(t, newJob(workOf(2, 5)))
	b.settle()
	b.edit(func(spec *batchv1.JobSpec) { spec.Parallelism = ptr.To[int32](0) })
	b.Sync()
	b.terminate(b.live()[0], 0)
	_, err := b.reconcile()
	b.Must(err)
	if job := b.settle(); job.Status.Succeeded != 1 || job.Status.Active != 0 {
		t.Errorf("status %+v", job.Status)
	}
}

func TestIndexInheritsFailures(t *testing.T) {
	b := newBench(t, newJob(indexed, workOf(1, 1), limitPerIndex(2)))
	for failures := range 3 {
		b.settle()
		pod := b.live()[0]
		if counted, _ := indexFailures(pod); counted != failures {
			t.Errorf("the pod has %d failures, want %d", counted, failures)
		}
		b.terminate(pod, 1)
		if wait := b.pass(); failures < 2 && wait != time.Duration(10<<failures)*time.Second {
			t.Errorf("after failure %d: requeued after %v", failures+1, wait)
		}
		if b.get(pod); failures < 2 && !isTracked(pod) {
			t.Error("the failed pod was released before a new pod inherited its failures")
		}
		b.Clock.Step(time.Minute)
	}
	job := b.settle()
	if end := jobs.Finished(job); end == nil || end.Reason != "FailedIndexes" || *job.Status.FailedIndexes != "0" || job.Status.Failed != 3 {
		t.Errorf("status %+v", job.Status)
	}
}

func TestPodFailurePolicyFailsJob(t *testing.T) {
	b := newBench(t, newJob(func(spec *batchv1.JobSpec) {
		spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{onCodes("Ignore", nil, "In", 3), onCodes("FailJob", nil, "In", 4)}}
	}))
	b.settle()
	b.terminate(b.live()[0], 3)
	b.settle()
	if wait := b.pass(); wait != 10*time.Second || b.job().Status.Failed != 0 {
		t.Errorf("requeued after %v, status %+v", wait, b.job().Status)
	}
	b.Clock.Step(10 * time.Second)
	b.settle()
	pod := b.live()[0]
	b.terminate(pod, 4)
	job := b.settle()
	want := "Container c for pod ns/" + pod.Name + " failed with exit code 4 matching FailJob rule at index 1"
	if end := jobs.Finished(job); end == nil || end.Reason != "PodFailurePolicy" || end.Message != want || job.Status.Failed != 1 {
		t.Errorf("status %+v", job.Status)
	}
}

func TestSuccessPolicyCompletesJob(t *testing.T) {
	b := newBench(t, newJob(indexed, workOf(3, 3), func(spec *batchv1.JobSpec) {
		spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("0-1"), SucceededCount: ptr.To[int32](1)}}}
	}))
	b.settle()
	for _, pod := range b.live() {
		if pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "1" {
			b.terminate(pod, 0)
		}
	}
	b.settle()
	for _, pod := range b.all() {
		if pod.DeletionTimestamp != nil {
			b.removePod(pod)
		}
	}
	job := b.settle()
	want := []string{"SuccessCriteriaMet SuccessPolicy: Matched rules at index 0", "Complete SuccessPolicy: Matched rules at index 0"}
	if diff := cmp.Diff(want, trueConditions(job.Status)); diff != "" || job.Status.CompletedIndexes != "1" || job.Status.Succeeded != 1 || job.Status.Failed != 0 {
		t.Errorf("conditions (-want +got):\n%s\nstatus %+v", diff, job.Status)
	}
}

func TestJobOfOtherManagerIsLeftAlone(t *testing.T) {
	b := newBench(t, newJob(func(spec *batchv1.JobSpec) { spec.ManagedBy = ptr.To("example.com/mine") }))
	if job := b.settle(); len(b.all()) != 0 || job.Status.StartTime != nil {
		t.Errorf("%d pods, status %+v", len(b.all()), job.Status)
	}
	job := newJob(func(spec *batchv1.JobSpec) { spec.ManagedBy = ptr.To(batchv1.JobControllerName) })
	if b = newBench(t, job); b.settle().Status.Active != 1 {
		t.Error("a Job that names this controller does not run")
	}
}

func TestFailedCreationsAreNotCounted(t *testing.T) {
	b := newBench(t, newJob(workOf(3, 3)))
	b.Refuse = func(verb string, obj client.Object) error {
		if _, isPod := obj.(*corev1.Pod); isPod && verb == "create" && len(b.all()) == 1 {
			return errors.New("quota")
		}
		return nil
	}
	if _, err := b.reconcile(); err == nil || b.job().Status.Active != 1 {
		t.Errorf("error %v, status %+v", err, b.job().Status)
	}
	if events := b.Events(); !slices.Contains(events, "Warning FailedCreate Error creating: quota") {
		t.Errorf("events %q", events)
	}
	b.Refuse = nil
	if job := b.settle(); job.Status.Active != 3 {
		t.Errorf("status %+v", job.Status)
	}
}

func TestUncountedPodsAreReleased(t *testing.T) {
	ended := newJob()
	setCondition(&ended.Status, newCondition(batchv1.JobComplete, corev1.ConditionTrue, "", "", controltest.Start))
	others := ended.DeepCopy()
	others.Spec.ManagedBy = ptr.To("example.com/mine")
	owner := func(change func(*metav1.OwnerReference)) func(*batchv1.Job) []metav1.OwnerReference {
		return func(job *batchv1.Job) []metav1.OwnerReference {
			ref := *metav1.NewControllerRef(job, kind)
			change(&ref)
			return []metav1.OwnerReference{ref}
		}
	}
	same := func(*metav1.OwnerReference) {}
	for name, test := range map[string]struct {
		job    *batchv1.Job
		owners func(*batchv1.Job) []metav1.OwnerReference
		stays  bool
	}{
		"running Job":                  {newJob(), owner(same), true},
		"finished Job":                 {ended, owner(same), false},
		"Job of another manager":       {others, owner(same), true},
		"deleted Job":                  {newJob(), owner(func(r *metav1.OwnerReference) { r.Name = "gone" }), false},
		"deleted Job of the same name": {newJob(), owner(func(r *metav1.OwnerReference) { r.UID = "gone" }), false},
		"owner of another kind":        {newJob(), owner(func(r *metav1.OwnerReference) { r.APIVersion = "example.com/v1" }), true},
		"no owner":                     {newJob(), func(*batchv1.Job) []metav1.OwnerReference { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.job.DeepCopy())
			job := b.job()
			job.Status = test.job.Status
			b.Must(b.API.Status().Update(ctx, job))
			pod := newPod(job, slot{index: -1})
			pod.Name, pod.OwnerReferences = "p", test.owners(job)
			b.Must(b.API.Create(ctx, pod))
			b.Sync()
			r := &releaser{client: b.Env().Client, live: b.Env().Live}
			_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
			b.Must(err)
			if b.get(pod); isTracked(pod) != test.stays {
				t.Errorf("finalizers %v", pod.Finalizers)
			}
			if !slices.Contains(pod.Finalizers, running) {
				t.Error("another finalizer was removed as well")
			}
		})
	}
}

// An orphan was adopted, but the cache does not have the adoption yet. The pod must be counted.
func TestAdoptedPodKeepsFinalizer(t *testing.T) {
	b := newBench(t, newJob())
	pod := newPod(b.job(), slot{index: -1})
	pod.Name, pod.OwnerReferences = "p", nil
	b.Must(b.API.Create(ctx, pod))
	b.Sync()
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.job(), kind)}
	b.Must(b.API.Update(ctx, pod))
	r := &releaser{client: b.Env().Client, live: b.Env().Live}
	for range 2 {
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		b.Must(err)
		if b.get(pod); !isTracked(pod) {
			t.Fatalf("finalizers %v", pod.Finalizers)
		}
		b.Sync()
	}
}

// A Job and its pod are restored together, and the cache has the pod first. It may also still have a
// deleted Job of the same name.
func TestPodOfUncachedJobKeepsFinalizer(t *testing.T) {
	for name, namesake := range map[string]bool{"no Job": false, "a namesake": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newJob())
			former := b.job()
			if !namesake {
				b.Must(b.API.Delete(ctx, former))
				b.Sync()
			}
			pod := newPod(former, slot{index: -1})
			pod.Name, pod.OwnerReferences[0].UID = "p", "uid-0003" // of the Job that is created next
			b.Must(b.API.Create(ctx, pod))
			b.Sync()
			if namesake {
				b.Must(b.API.Delete(ctx, former))
			}
			restored := newJob()
			b.Must(b.API.Create(ctx, restored))
			if restored.UID != "uid-0003" {
				t.Fatalf("the Job has the UID %s", restored.UID)
			}
			r := &releaser{client: b.Env().Client, live: b.Env().Live}
			_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
			b.Must(err)
			if b.get(pod); !isTracked(pod) {
				t.Error("the finalizer was removed")
			}
		})
	}
}

func TestFinishedJobsExpire(t *testing.T) {
	job := newJob(func(spec *batchv1.JobSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](60) })
	b := newBench(t, job)
	x := &expirer{client: b.Env().Client, live: b.API, clock: b.Clock}
	look := func() time.Duration {
		result, err := x.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		b.Must(err)
		return result.RequeueAfter
	}
	if wait := look(); wait != 0 {
		t.Errorf("a running Job is requeued after %v", wait)
	}
	setCondition(&job.Status, newCondition(batchv1.JobFailed, corev1.ConditionTrue, "", "", controltest.Start))
	b.Must(b.API.Status().Update(ctx, job))
	b.Sync()
	b.Clock.Step(20 * time.Second)
	if wait := look(); wait != 40*time.Second {
		t.Errorf("requeued after %v", wait)
	}
	// The TTL was extended, but the cache does not have the update yet.
	b.edit(func(spec *batchv1.JobSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](100) })
	b.Clock.Step(40 * time.Second)
	if wait := look(); wait != 40*time.Second {
		t.Errorf("after the extension: requeued after %v", wait)
	}
	// It is extended again when it is about to be deleted.
	b.Clock.Step(40 * time.Second)
	b.Refuse = func(string, client.Object) error {
		b.Refuse = nil
		b.edit(func(spec *batchv1.JobSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](120) })
		return nil
	}
	look()
	b.Must(b.API.Get(ctx, key, job))
	b.Sync()
	// A clock that was set back keeps it.
	b.Clock.SetTime(controltest.Start.Add(-time.Hour))
	if wait := look(); wait != time.Hour+2*time.Minute {
		t.Errorf("with the clock set back: requeued after %v", wait)
	}
	b.Clock.SetTime(controltest.Start.Add(2 * time.Minute))
	look()
	if err := b.API.Get(ctx, key, job); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the Job was not deleted: %v", err)
	}
}

// TestWatches runs the controllers under a manager, to test what wakes them.
func TestWatches(t *testing.T) {
	w := controltest.New(t)
	w.Run(t, control.Controller{Name: Name, Add: Add}, control.Controller{Name: TTLName, Add: AddTTL})
	b := &bench{World: w, t: t}
	eventually := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("timed out waiting: %s", what)
			}
		}
	}
	job := newJob(workOf(2, 2))
	b.Must(w.API.Create(ctx, job))
	eventually("two pods", func() bool { return len(b.live()) == 2 })
	for _, pod := range b.live() {
		b.terminate(pod, 0)
	}
	eventually("the Job is finished", func() bool { return jobs.Finished(b.job()) != nil })
	// A client adds the finalizer to a pod of the finished Job.
	pod := b.all()[0]
	pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	b.Must(w.API.Update(ctx, pod))
	eventually("the finalizer is removed", func() bool { return !isTracked(b.get(pod)) })
	b.edit(func(spec *batchv1.JobSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](0) })
	eventually("the Job is deleted", func() bool { return w.API.Get(ctx, key, job) != nil })
}

// TestDeletedOwner: nothing is created for a Job that is deleted, but still cached.
func TestDeletedOwner(t *testing.T) {
	b := newBench(t, newJob(workOf(2, 2)))
	b.Must(b.API.Delete(ctx, b.job()))
	_, err := b.reconcile()
	b.Must(client.IgnoreNotFound(err)) // the status
	if n := len(b.all()); n != 0 {
		t.Errorf("%d pods", n)
	}
}
