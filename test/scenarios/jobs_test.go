// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// jobEnds waits for a condition of a Job.
func (s *session) jobEnds(job, condition string) {
	s.Helper()
	s.kubectl("wait", "--for=condition="+condition, "job/"+job, "--timeout", patience.String())
}

// TestJobs runs Jobs in real containers: one that completes, one that fails, and one with an index
// for each pod.
func TestJobs(t *testing.T) {
	s := withNode(t)

	// Three completions, two in parallel.
	s.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: three}
spec:
  completions: 3
  parallelism: 2
  ttlSecondsAfterFinished: 3600
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: "` + image + `", command: [sh, -c, "echo done"]}]
`)
	s.jobEnds("three", "complete")
	s.table("NAME STATUS COMPLETIONS DURATION AGE\nthree Complete 3/3 * *", "get", "job", "three")
	s.contains(s.kubectl("logs", "job/three"), "done\n")
	s.describes("job", "three", "SuccessfulCreate", "Completed", "Job completed", "job-controller",
		"0 Active (0 Ready) / 3 Succeeded / 0 Failed")
	for _, pod := range s.pods("job-name=three") {
		if len(pod.Finalizers) > 0 {
			t.Errorf("pod %s is counted and keeps %v", pod.Name, pod.Finalizers)
		}
	}
	// With a short ttlSecondsAfterFinished, the Job and its pods are deleted.
	s.kubectl("patch", "job", "three", "-p", `{"spec":{"ttlSecondsAfterFinished":1}}`)
	s.eventually("the Job and its pods expire", func() error {
		if out := s.kubectl("get", "jobs,pods", "-l", "job-name=three", "-o", "name"); out != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})

	// With backoffLimit 1, a pod may fail once.
	s.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: hopeless}
spec:
  backoffLimit: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: "` + image + `", command: [sh, -c, "exit 3"]}]
`)
	s.jobEnds("hopeless", "failed")
	s.prints("2", "get", "job", "hopeless", "-o", "jsonpath={.status.failed}")
	s.describes("job", "hopeless", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
	pods := s.pods("job-name=hopeless")
	if len(pods) != 2 {
		t.Fatalf("%d pods failed", len(pods))
	}
	apart := pods[0].CreationTimestamp.Sub(pods[1].CreationTimestamp.Time).Abs().Seconds()
	if apart < 9 {
		t.Errorf("a failed pod was replaced after %v seconds", apart)
	}

	// Each index fails up to its limit, and prints its index.
	s.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: each}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  backoffLimitPerIndex: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: "` + image + `", command: [sh, -c, "echo $(hostname) $JOB_COMPLETION_INDEX; test $JOB_COMPLETION_INDEX != 1"]}]
`)
	s.jobEnds("each", "failed")
	s.prints("0,2 1 2 1", "get", "job", "each", "-o",
		"jsonpath={.status.completedIndexes} {.status.failedIndexes} {.status.succeeded} {.status.failed}")
	for index := range 3 {
		selector := fmt.Sprintf("job-name=each,batch.kubernetes.io/job-completion-index=%d", index)
		s.prints(fmt.Sprintf("each-%d %d\n", index, index), "logs", "-l", selector)
	}
}

// TestJobsPods: a Job adopts and releases pods, and suspends, resumes and orphans them.
func TestJobsPods(t *testing.T) {
	s := withoutNode(t)
	s.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: long}
spec:
  completions: 4
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: any}]
`)
	var pods []corev1.Pod
	s.eventually("two pods run", func() error {
		pods = nil
		for _, pod := range s.pods("job-name=long") {
			if pod.Status.Phase == corev1.PodRunning {
				pods = append(pods, pod)
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("%d", len(pods))
		}
		return nil
	})

	// A matching orphan is adopted, and a pod that no longer matches is released.
	name := pods[0].Name
	s.kubectl("patch", "pod", name, "--type=json", "-p", `[{"op":"remove","path":"/metadata/ownerReferences"}]`)
	s.eventually("the orphan is adopted", func() error {
		pod := s.pod(name)
		if metav1.GetControllerOf(pod) == nil {
			return fmt.Errorf("owners %v", pod.OwnerReferences)
		}
		if len(pod.Finalizers) != 1 {
			return fmt.Errorf("finalizers %v", pod.Finalizers)
		}
		return nil
	})
	s.kubectl("label", "pod", name, "job-name-", "controller-uid-", "batch.kubernetes.io/job-name-", "batch.kubernetes.io/controller-uid-")
	s.eventually("the pod is released, and replaced", func() error {
		pod := s.pod(name)
		if metav1.GetControllerOf(pod) != nil || len(pod.Finalizers) > 0 {
			return fmt.Errorf("owners %v, finalizers %v", pod.OwnerReferences, pod.Finalizers)
		}
		if n := len(s.pods("job-name=long")); n != 2 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})

	s.kubectl("patch", "job", "long", "-p", `{"spec":{"suspend":true}}`)
	s.eventually("a suspended Job has no pods", func() error {
		if n := len(s.pods("job-name=long")); n != 0 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	s.jobEnds("long", "suspended")
	s.contains(s.kubectl("get", "job", "long", "-o", "wide"), "Suspended")

	// After the resume its pods complete: annotations tell the simulated nodes to.
	s.kubectl("delete", "job", "long", "--timeout", patience.String())
	s.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: short}
spec:
  completions: 6
  parallelism: 3
  completionMode: Indexed
  suspend: true
  template:
    metadata: {annotations: {kindred.dev/simulated-exit-after: 100ms, kindred.dev/simulated-exit-code: "0"}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: any}]
`)
	s.jobEnds("short", "suspended")
	s.kubectl("patch", "job", "short", "-p", `{"spec":{"suspend":false}}`)
	s.jobEnds("short", "complete")
	s.prints("0-5 6", "get", "job", "short", "-o", "jsonpath={.status.completedIndexes} {.status.succeeded}")

	// A pod that its Job has orphaned can be deleted, because the Job no longer tracks it.
	s.kubectl("delete", "job", "short", "--cascade=orphan")
	s.kubectl("delete", "pods", "-l", "job-name=short", "--timeout", patience.String())
}
