// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWorkloadsSurviveKill kills the server while a Job runs, a DaemonSet is updated, and somebody evicts all
// pods that a PodDisruptionBudget protects.
func TestWorkloadsSurviveKill(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "--no-node", "--simulated-nodes", "3")
	s := newSession(t, c)
	s.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: any}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: "any:v0"}]}
`)
	s.budget("web", "6 of 5 healthy, 6 expected, 1 allowed, SufficientPods")
	s.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: count}
spec:
  completions: 60
  parallelism: 6
  completionMode: Indexed
  template:
    metadata: {annotations: {kindred.dev/simulated-exit-after: 200ms}}
    spec: {restartPolicy: Never, terminationGracePeriodSeconds: 0, containers: [{name: c, image: any}]}
`)
	evicted := 0
	for kill := range 5 {
		s.kubectl("set", "image", "daemonset/agent", fmt.Sprint("c=any:v", kill+1))
		evicted += s.evictAll("app=web")
		time.Sleep(time.Duration(kill) * 70 * time.Millisecond)
		c.kill(t)
		c.again(t)
		evicted += s.evictAll("app=web")
	}
	if evicted == 0 {
		t.Error("no pod was evicted")
	}
	s.jobEnds("count", "complete")
	s.countedOnce("count", 60)
	s.budget("web", "6 of 5 healthy, 6 expected, 1 allowed, SufficientPods")
	s.eventually("the DaemonSet is updated", func() error { return s.onEachNode("agent", "any:v5", 3) })
}

// evictAll tries to evict all pods that a budget with maxUnavailable 1 protects, and returns how many were
// evicted. All but one must be healthy all the time.
func (s *session) evictAll(selector string) (evicted int) {
	s.Helper()
	for _, pod := range s.pods(selector) {
		switch err := s.evict(pod.Name); {
		case err == nil:
			evicted++
		case !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err):
			s.Fatal(err)
		}
		if healthy := s.healthy(selector); healthy < 5 {
			s.Errorf("%d healthy pods after the eviction of %s", healthy, pod.Name)
		}
	}
	return evicted
}

// healthy returns the number of pods that are Ready and not being deleted.
func (s *session) healthy(selector string) (n int) {
	s.Helper()
	for _, pod := range s.pods(selector) {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				n++
			}
		}
	}
	return n
}

// countedOnce checks that a Job has run each of its indexes in one pod, and has counted all of them.
func (s *session) countedOnce(name string, completions int) {
	s.Helper()
	job, err := s.cluster.client(s.T).BatchV1().Jobs(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	want := batchv1.JobStatus{Succeeded: int32(completions), CompletedIndexes: fmt.Sprintf("0-%d", completions-1)}
	if got := job.Status; got.Succeeded != want.Succeeded || got.CompletedIndexes != want.CompletedIndexes || got.Failed != 0 {
		s.Errorf("status %+v", got)
	}
	runs := map[string]int{}
	for _, pod := range s.pods("job-name=" + name) {
		runs[pod.Annotations[batchv1.JobCompletionIndexAnnotation]]++
	}
	for index, n := range runs {
		if n != 1 {
			s.Errorf("index %s ran in %d pods", index, n)
		}
	}
	if len(runs) != completions {
		s.Errorf("%d indexes have pods", len(runs))
	}
}

// onEachNode returns an error unless a DaemonSet is updated, and each node has one pod with the image.
func (s *session) onEachNode(name, image string, nodes int) error {
	s.Helper()
	set, err := s.cluster.client(s.T).AppsV1().DaemonSets(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if int(set.Status.UpdatedNumberScheduled) != nodes || int(set.Status.NumberReady) != nodes {
		return fmt.Errorf("status %+v", set.Status)
	}
	found := map[string]string{}
	for _, pod := range s.pods("app=" + name) {
		if other, twice := found[pod.Spec.NodeName]; twice || pod.Spec.Containers[0].Image != image {
			return fmt.Errorf("%s has %s, and %s", pod.Spec.NodeName, pod.Spec.Containers[0].Image, other)
		}
		found[pod.Spec.NodeName] = pod.Name
	}
	if len(found) != nodes {
		return fmt.Errorf("pods on %d nodes", len(found))
	}
	return nil
}
