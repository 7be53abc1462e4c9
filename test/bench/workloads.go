// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

const (
	manyReplicas = 2000
	setReplicas  = 100
	completions  = 1000
	parallelism  = 100
)

// workload is a measurement on 20 simulated nodes, whose preparation is not measured.
type workload struct {
	prepare, measure func(context.Context, kubernetes.Interface) error
}

var (
	scaling      = workload{measure: scaleTo(replicas)}.work()
	scalingMany  = workload{measure: scaleTo(manyReplicas)}.work()
	deleting     = workload{prepare: scaleTo(replicas), measure: deleteDeployment(replicas)}.work()
	deletingMany = workload{prepare: scaleTo(manyReplicas), measure: deleteDeployment(manyReplicas)}.work()
	rollingOut   = workload{prepare: scaleTo(replicas), measure: rollOut}.work()
	runningJob   = workload{measure: runJob}.work()
	startingSet  = workload{measure: startSet}.work()
)

// work returns the measurement of the time that the workload takes, in seconds.
func (w workload) work() work {
	return work{nodes: 20, measure: func(ctx context.Context, s *side) (seconds float64, err error) {
		if err := w.prepared(ctx, s); err != nil {
			return 0, err
		}
		err = s.profiled(ctx, func() error {
			seconds, err = w.timed(ctx, s)
			return err
		})
		return seconds, err
	}}
}

func (w workload) prepared(ctx context.Context, client kubernetes.Interface) error {
	if w.prepare == nil {
		return nil
	}
	if err := w.prepare(ctx, client); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// timed measures the workload.
func (w workload) timed(ctx context.Context, s *side) (seconds float64, err error) {
	err = s.spending(func() error {
		began := time.Now()
		err := w.measure(ctx, s)
		seconds = time.Since(began).Seconds()
		return err
	})
	return seconds, err
}

// scaleTo creates a Deployment and waits until all its pods are Running.
func scaleTo(replicas int32) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		return awaitPods(ctx, client, int(replicas), isRunning, func() error {
			_, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, deployment(replicas), metav1.CreateOptions{})
			return err
		})
	}
}

// deleteDeployment deletes a Deployment and waits until all its pods are gone.
func deleteDeployment(replicas int) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		deleted := func(e watch.Event) bool { return e.Type == watch.Deleted }
		return awaitPods(ctx, client, replicas, deleted, func() error {
			return client.AppsV1().Deployments(metav1.NamespaceDefault).Delete(ctx, "bench", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		})
	}
}

// rollOut changes the template of a Deployment and waits until the update is complete, as kubectl rollout
// status does.
func rollOut(ctx context.Context, client kubernetes.Interface) error {
	deployments := client.AppsV1().Deployments(metav1.NamespaceDefault)
	d, err := deployments.Get(ctx, "bench", metav1.GetOptions{})
	if err != nil {
		return err
	}
	events, err := deployments.Watch(ctx, metav1.ListOptions{ResourceVersion: d.ResourceVersion})
	if err != nil {
		return err
	}
	change := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":"any:v2"}]}}}}`, d.Spec.Template.Spec.Containers[0].Name)
	if d, err = deployments.Patch(ctx, "bench", types.StrategicMergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
		return err
	}
	return await(ctx, events, func(e watch.Event) bool {
		now, ok := e.Object.(*appsv1.Deployment)
		if !ok {
			return false
		}
		s := now.Status
		return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == replicas && s.Replicas == replicas && s.AvailableReplicas == replicas
	})
}

// runJob runs a Job whose pods end at once.
func runJob(ctx context.Context, client kubernetes.Interface) error {
	template := pod("")
	template.Annotations = map[string]string{"kindred.dev/simulated-exit-after": "0s"}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	jobs := client.BatchV1().Jobs(metav1.NamespaceDefault)
	events, err := jobs.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	_, err = jobs.Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: batchv1.JobSpec{
		Completions: ptr.To[int32](completions), Parallelism: ptr.To[int32](parallelism),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: template.Annotations}, Spec: template.Spec},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return await(ctx, events, func(e watch.Event) bool {
		job, ok := e.Object.(*batchv1.Job)
		return ok && job.Status.CompletionTime != nil
	})
}

// startSet creates a StatefulSet whose pods start in parallel.
func startSet(ctx context.Context, client kubernetes.Interface) error {
	template := pod("")
	return awaitPods(ctx, client, setReplicas, isRunning, func() error {
		_, err := client.AppsV1().StatefulSets(metav1.NamespaceDefault).Create(ctx, &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "bench"},
			Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To[int32](setReplicas), PodManagementPolicy: appsv1.ParallelPodManagement,
				Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

func isRunning(e watch.Event) bool {
	pod, ok := e.Object.(*corev1.Pod)
	return ok && pod.Status.Phase == corev1.PodRunning
}

// awaitPods waits until an event of the wanted kind was observed for a number of pods.
func awaitPods(ctx context.Context, client kubernetes.Interface, count int, wanted func(watch.Event) bool, begin func() error) error {
	events, err := watchPods(ctx, client.CoreV1().Pods(metav1.NamespaceDefault))
	if err != nil {
		return err
	}
	if err := begin(); err != nil {
		events.Stop()
		return err
	}
	seen := map[string]bool{}
	return await(ctx, events, func(e watch.Event) bool {
		if pod, ok := e.Object.(*corev1.Pod); ok && wanted(e) {
			seen[pod.Name] = true
		}
		return len(seen) == count
	})
}

// watchPods watches pods from now on. A server ends the watch of a client that does not keep up, as on a
// busy machine; it is then resumed, as informers do.
func watchPods(ctx context.Context, pods typedcorev1.PodInterface) (watch.Interface, error) {
	now, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	return watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: pods.Watch})
}

// claimToReady measures the time from the creation of a claim of the default class, and a pod that uses it,
// until the pod is Ready on a real node.
func claimToReady(ctx context.Context, b *bench) (float64, error) {
	c, client, err := b.startWithNode(ctx)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	if _, err := onePodWithClaim(ctx, client, "warm-up"); err != nil {
		return 0, err
	}
	var all []time.Duration
	err = c.profiled(ctx, func() error {
		for i := range podRuns {
			took, err := onePodWithClaim(ctx, client, fmt.Sprintf("pod-%d", i))
			if err != nil {
				return err
			}
			all = append(all, took)
		}
		return nil
	})
	return median(all).Seconds(), err
}

func onePodWithClaim(ctx context.Context, client kubernetes.Interface, name string) (time.Duration, error) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
	began := time.Now()
	if _, err := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	creation := time.Since(began)
	start, _, err := onePod(ctx, client, name, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	})
	return creation + start, err
}
