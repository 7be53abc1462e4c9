// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "sum"}
)

// running is the finalizer by which the fake node agent keeps a terminating pod.
const running = "test/running"

// newJob returns a Job as the API would store it.
func newJob(change ...func(*batchv1.JobSpec)) *batchv1.Job {
	app := map[string]string{"job-name": key.Name}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To[int32](1), Completions: ptr.To[int32](1), BackoffLimit: ptr.To[int32](6),
			CompletionMode: ptr.To(batchv1.NonIndexedCompletion), PodReplacementPolicy: ptr.To(batchv1.TerminatingOrFailed),
			Suspend: ptr.To(false), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app, Finalizers: []string{running}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c"}}},
			},
		},
	}
	for _, c := range change {
		c(&job.Spec)
	}
	return job
}

func workOf(parallelism, completions int32) func(*batchv1.JobSpec) {
	return func(spec *batchv1.JobSpec) { spec.Parallelism, spec.Completions = &parallelism, &completions }
}

func indexed(spec *batchv1.JobSpec) { spec.CompletionMode = ptr.To(batchv1.IndexedCompletion) }

func limitPerIndex(limit int32) func(*batchv1.JobSpec) {
	return func(spec *batchv1.JobSpec) {
		spec.BackoffLimitPerIndex, spec.BackoffLimit = &limit, ptr.To[int32](1<<31-1)
	}
}

// bench is a reconciler with its own World.
type bench struct {
	*controltest.World
	*reconciler
	t testing.TB
}

func newBench(t testing.TB, objs ...client.Object) *bench {
	b := &bench{World: controltest.New(t, objs...), t: t}
	b.restart()
	return b
}

// restart replaces the reconciler by that of a new process, with an empty memory and a fresh cache.
func (b *bench) restart() {
	b.Sync()
	b.reconciler = newReconciler(b.Env(), b.Seen, b.Seen)
}

func (b *bench) reconcile() (ctrl.Result, error) {
	return b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
}

func (b *bench) job() *batchv1.Job {
	job := &batchv1.Job{}
	b.Must(b.API.Get(ctx, key, job))
	return job
}

func (b *bench) edit(change func(*batchv1.JobSpec)) {
	job := b.job()
	change(&job.Spec)
	b.Must(b.API.Update(ctx, job))
}

// settle reconciles with a fresh cache until nothing changes.
func (b *bench) settle() *batchv1.Job {
	b.t.Helper()
	for before := ""; ; {
		b.Sync()
		if _, err := b.reconcile(); err != nil {
			b.t.Fatal(err)
		}
		b.Sync()
		if now := b.Seen(); now == before {
			return b.job()
		} else {
			before = now
		}
	}
}

func (b *bench) all() []*corev1.Pod {
	list := &corev1.PodList{}
	b.Must(b.API.List(ctx, list))
	out := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// live returns the pods that have neither ended nor are being deleted.
func (b *bench) live() []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range b.all() {
		if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			out = append(out, pod)
		}
	}
	return out
}

func (b *bench) get(pod *corev1.Pod) *corev1.Pod {
	b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	return pod
}

// terminate ends the container of a pod with an exit code.
func (b *bench) terminate(pod *corev1.Pod, code int32) {
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(b.Clock.Now())}}}}
	b.Must(b.API.Status().Update(ctx, pod))
}

// removePod removes the finalizer that keeps a terminating pod, as if its node agent had stopped it.
func (b *bench) removePod(pod *corev1.Pod) {
	var left []string
	for _, f := range pod.Finalizers {
		if f != running {
			left = append(left, f)
		}
	}
	pod.Finalizers = left
	b.Must(b.API.Update(ctx, pod))
}

// pass reconciles once with a fresh cache, and returns when the Job is requeued.
func (b *bench) pass() time.Duration {
	b.t.Helper()
	b.Sync()
	result, err := b.reconcile()
	b.Must(err)
	return result.RequeueAfter
}

// trueConditions describes the true conditions of a status as "type reason: message".
func trueConditions(status batchv1.JobStatus) []string {
	var out []string
	for _, c := range status.Conditions {
		if c.Status == corev1.ConditionTrue {
			out = append(out, string(c.Type)+" "+c.Reason+": "+c.Message)
		}
	}
	return out
}
