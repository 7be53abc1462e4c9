// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var now = controltest.Start

// state describes a pod: its phase, with the prefix "-" if it is being deleted, the suffix ":" with
// its completion index, and the suffix "!" with the former failures of the index.
type state string

func (s state) pod(i int) *corev1.Pod {
	text, failures, _ := strings.Cut(string(s), "!")
	text, index, isIndexed := strings.Cut(text, ":")
	phase, stopping := strings.CutPrefix(text, "-")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("p", i)), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Finalizers: []string{batchv1.JobTrackingFinalizer}, Annotations: map[string]string{},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPhase(phase)},
	}
	if stopping {
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(-time.Hour)))
	}
	if isIndexed {
		pod.Annotations[batchv1.JobCompletionIndexAnnotation] = index
	}
	if failures != "" {
		pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = failures
	}
	return pod
}

func podsOf(states ...state) []*corev1.Pod {
	var out []*corev1.Pod
	for i, s := range states {
		out = append(out, s.pod(i))
	}
	return out
}

func names(of []*corev1.Pod) (out []string) {
	for _, pod := range of {
		out = append(out, pod.Name)
	}
	return slices.Sorted(slices.Values(out))
}

func limit(n int32) func(*batchv1.JobSpec) {
	return func(spec *batchv1.JobSpec) { spec.BackoffLimit = &n }
}

func suspend(spec *batchv1.JobSpec) { spec.Suspend = ptr.To(true) }

func replaceFailed(spec *batchv1.JobSpec) { spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }

func queueOf(parallelism int32) func(*batchv1.JobSpec) {
	return func(spec *batchv1.JobSpec) { spec.Parallelism, spec.Completions = &parallelism, nil }
}

func with3(indexes string, failed *string) func(*batchv1.JobStatus) {
	return func(s *batchv1.JobStatus) { s.CompletedIndexes, s.FailedIndexes = indexes, failed }
}

func TestPlan(t *testing.T) {
	spec := func(changes ...func(*batchv1.JobSpec)) []func(*batchv1.JobSpec) { return changes }
	counted := func(succeeded, failed int32) func(*batchv1.JobStatus) {
		return func(s *batchv1.JobStatus) { s.Succeeded, s.Failed = succeeded, failed }
	}
	for name, test := range map[string]struct {
		spec    []func(*batchv1.JobSpec)
		status  func(*batchv1.JobStatus)
		pods    []state
		verdict string
		// create holds the indexes of new pods, -1 for a pod without an index.
		create    []int
		drop, end []string
		wait      time.Duration
	}{
		"a new Job":                       {spec: spec(workOf(2, 3)), create: []int{-1, -1}},
		"limited by the completions left": {spec: spec(workOf(3, 4)), status: counted(2, 0), pods: []state{"Running"}, create: []int{-1}},
		"an uncounted success":            {spec: spec(workOf(3, 3)), pods: []state{"Succeeded", "Running", "Running"}},
		"parallelism was reduced":         {spec: spec(workOf(1, 5)), pods: []state{"Running", "Pending", "Running"}, drop: []string{"p0", "p1"}},
		"work queue":                      {spec: spec(queueOf(2)), pods: []state{"Running"}, create: []int{-1}},
		"work queue after a success":      {spec: spec(queueOf(3)), pods: []state{"Running", "Succeeded"}},
		"suspended":                       {spec: spec(workOf(2, 2), suspend), pods: []state{"Running", "Running"}, drop: []string{"p0", "p1"}},
		"after the backoff":               {spec: spec(workOf(2, 2)), pods: []state{"Failed", "Running"}, create: []int{-1}},
		"terminating pod is replaced":     {spec: spec(workOf(1, 1)), pods: []state{"-Running"}, create: []int{-1}},
		"terminating pod is not replaced with policy Failed": {spec: spec(workOf(1, 1), replaceFailed), pods: []state{"-Running"}},
		"ended pod is replaced with policy Failed":           {spec: spec(workOf(1, 1), replaceFailed), pods: []state{"-Failed"}, create: []int{-1}},
		"backoffLimit is reached":                            {spec: spec(workOf(1, 2), limit(2)), status: counted(0, 1), pods: []state{"Failed"}, create: []int{-1}},
		"backoffLimit is exceeded": {spec: spec(workOf(2, 2), limit(1)), status: counted(0, 1), pods: []state{"Failed", "Running"},
			verdict: "FailureTarget BackoffLimitExceeded: Job has reached the specified backoff limit", end: []string{"p1"}},
		"before the deadline": {spec: spec(workOf(1, 1), func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr.To[int64](30) }),
			status: func(s *batchv1.JobStatus) { s.StartTime = ptr.To(metav1.NewTime(now.Add(-10 * time.Second))) },
			pods:   []state{"Running"}, wait: 20 * time.Second},
		"after the deadline": {spec: spec(workOf(1, 1), func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr.To[int64](30) }),
			status: func(s *batchv1.JobStatus) { s.StartTime = ptr.To(metav1.NewTime(now.Add(-30 * time.Second))) },
			pods:   []state{"Running"}, end: []string{"p0"},
			verdict: "FailureTarget DeadlineExceeded: Job was active longer than specified deadline"},

		"indexes": {spec: spec(indexed, workOf(3, 5)), status: with3("1", nil), pods: []state{"Running:0", "Succeeded:3"}, create: []int{2, 4}},
		"duplicate index, index too high, no index": {spec: spec(indexed, workOf(3, 3)), pods: []state{"Running:1", "Pending:1", "Running:3", "Running"},
			drop: []string{"p1", "p2", "p3"}},
		"terminating index is not replaced with policy Failed": {spec: spec(indexed, replaceFailed, workOf(3, 3)), pods: []state{"-Running:0"}, create: []int{1, 2}},
		"limit per index is not exceeded":                      {spec: spec(indexed, workOf(2, 2), limitPerIndex(1)), pods: []state{"Failed:0!0", "Running:1!0"}, create: []int{0}},
		"limit per index is exceeded": {spec: spec(indexed, workOf(3, 3), limitPerIndex(1)), pods: []state{"Failed:0!1", "Running:1!0"}, status: with3("", nil),
			create: []int{2}},
		"all indexes have completed or failed": {spec: spec(indexed, workOf(3, 3), limitPerIndex(1)), status: with3("1,2", nil), pods: []state{"Failed:0!1"},
			verdict: "FailureTarget FailedIndexes: Job has failed indexes"},
		"maxFailedIndexes is exceeded": {spec: spec(indexed, workOf(5, 5), limitPerIndex(0), func(s *batchv1.JobSpec) { s.MaxFailedIndexes = ptr.To[int32](1) }),
			status: with3("", ptr.To("3")), pods: []state{"Failed:0!0", "Running:1!0"}, end: []string{"p1"},
			verdict: "FailureTarget MaxFailedIndexesExceeded: Job has exceeded the specified maximal number of failed indexes"},
		"success policy is met": {spec: spec(indexed, workOf(3, 3), func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("0")}}}
		}), pods: []state{"Succeeded:0", "Running:1", "Running:2"}, end: []string{"p1", "p2"},
			verdict: "SuccessCriteriaMet SuccessPolicy: Matched rules at index 0"},
		"the end was decided earlier": {spec: spec(workOf(1, 1)), status: func(s *batchv1.JobStatus) {
			setCondition(s, newCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, "Because", "of that", now))
		}, pods: []state{"Running", "Succeeded"}, end: []string{"p0"}, verdict: "FailureTarget Because: of that"},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(test.spec...)
			if test.status != nil {
				test.status(&job.Status)
			}
			p := observe(job, podsOf(test.pods...), backoff{}, now).plan()
			verdict := ""
			if p.endCondition != nil {
				verdict = trueConditions(batchv1.JobStatus{Conditions: []batchv1.JobCondition{*p.endCondition}})[0]
			}
			var create []int
			for _, s := range p.create {
				create = append(create, s.index)
			}
			got := []any{verdict, create, names(p.drop), names(p.terminate), p.wait}
			if diff := cmp.Diff([]any{test.verdict, test.create, test.drop, test.end, test.wait}, got); diff != "" {
				t.Errorf("end condition, create, drop, terminate, wait (-want +got):\n%s", diff)
			}
		})
	}
}

// The API refuses a status in which an index has both completed and failed.
func TestIndexSucceedsOrFails(t *testing.T) {
	for name, test := range map[string]struct {
		status       func(*batchv1.JobStatus)
		pods         []state
		done, failed string
	}{
		"succeeded and failed in one Reconcile": {with3("", nil), []state{"Failed:0!1", "Succeeded:0!1"}, "0", ""},
		"completed earlier, then failed":        {with3("0", nil), []state{"Failed:0!1"}, "0", ""},
		"failed earlier, then succeeded":        {with3("", ptr.To("0")), []state{"Succeeded:0!1"}, "", "0"},
		"other indexes end as well":             {with3("1", ptr.To("0")), []state{"Succeeded:0!1", "Failed:1!1", "Succeeded:2!0", "Failed:3!1"}, "1,2", "0,3"},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(indexed, workOf(4, 4), limitPerIndex(1))
			test.status(&job.Status)
			o := observe(job, podsOf(test.pods...), backoff{}, now)
			if o.completed.String() != test.done || o.failedIndexes.String() != test.failed {
				t.Errorf("completed %s, failed %s", o.completed, o.failedIndexes)
			}
		})
	}
	// A terminating pod was recorded as failed, and then succeeds.
	job := newJob(indexed)
	job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: []types.UID{"p0"}}
	if o := observe(job, podsOf("-Succeeded:0"), backoff{}, now); o.succeeded != 0 || o.failed != 1 {
		t.Errorf("%d succeeded, %d failed", o.succeeded, o.failed)
	}
}

func TestRestartsInPlaceCountTowardsTheLimit(t *testing.T) {
	for _, test := range []struct {
		limit, restarts int32
		policy          corev1.RestartPolicy
		fails           bool
	}{
		{2, 1, corev1.RestartPolicyOnFailure, false},
		{2, 2, corev1.RestartPolicyOnFailure, true},
		{0, 0, corev1.RestartPolicyOnFailure, false},
		{0, 1, corev1.RestartPolicyOnFailure, true},
		{2, 9, corev1.RestartPolicyNever, false},
	} {
		job := newJob(limit(test.limit))
		job.Spec.Template.Spec.RestartPolicy = test.policy
		list := podsOf("Running")
		list[0].Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: test.restarts}}
		if got := observe(job, list, backoff{}, now).decideEnd(); (got != nil) != test.fails {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestFailedPodIsReplacedAfterBackoff(t *testing.T) {
	list := podsOf("Failed")
	list[0].CreationTimestamp = metav1.NewTime(now.Add(-4 * time.Second))
	if p := observe(newJob(), list, backoff{}, now).plan(); len(p.create) != 0 || p.wait != 6*time.Second {
		t.Errorf("%d pods now, requeued after %v", len(p.create), p.wait)
	}
	// With backoffLimitPerIndex, each index has its own backoff.
	list = podsOf("Failed:0!2", "Failed:1!0")
	for _, pod := range list {
		pod.CreationTimestamp = metav1.NewTime(now.Add(-15 * time.Second))
	}
	p := observe(newJob(indexed, workOf(2, 2), limitPerIndex(5)), list, backoff{}, now).plan()
	if len(p.create) != 1 || p.create[0].index != 1 || p.create[0].replaces != list[1] || p.wait != 25*time.Second {
		t.Errorf("%+v, requeued after %v", p.create, p.wait)
	}
}

func TestPodOfAnIndex(t *testing.T) {
	job := newJob(indexed, limitPerIndex(3), func(spec *batchv1.JobSpec) {
		spec.Template.Spec.InitContainers = []corev1.Container{{Name: "init", Env: []corev1.EnvVar{{Name: indexVariable, Value: "mine"}}}}
		spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{onCodes("Ignore", nil, "In", 3)}}
	})
	failed := state("Failed:7!1").pod(0)
	failed.Status.ContainerStatuses = failedPod(map[string]int32{"c": 3}).Status.ContainerStatuses
	pod := newPod(job, slot{7, failed})
	if pod.GenerateName != "sum-7-" || pod.Spec.Hostname != "sum-7" || !isTracked(pod) || pod.Labels["job-name"] != "sum" ||
		pod.Labels["batch.kubernetes.io/job-completion-index"] != "7" || pod.OwnerReferences[0].Kind != "Job" {
		t.Errorf("pod %+v, host %s", pod.ObjectMeta, pod.Spec.Hostname)
	}
	want := map[string]string{"batch.kubernetes.io/job-completion-index": "7", "batch.kubernetes.io/job-index-failure-count": "1",
		"batch.kubernetes.io/job-index-ignored-failure-count": "1"}
	if diff := cmp.Diff(want, pod.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if env := pod.Spec.Containers[0].Env; len(env) != 1 || env[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" {
		t.Errorf("variables %+v", env)
	}
	if env := pod.Spec.InitContainers[0].Env; len(env) != 1 || env[0].Value != "mine" {
		t.Errorf("variables of the init container %+v", env)
	}
	if len(job.Spec.Template.Spec.Containers[0].Env) != 0 || len(job.Spec.Template.Annotations) != 0 {
		t.Error("the template has changed")
	}
	if got := prefix(strings.Repeat("x", 60), "12"); len(got) != maxPrefix || !strings.HasSuffix(got, "x-12-") {
		t.Errorf("prefix %q", got)
	}
}
