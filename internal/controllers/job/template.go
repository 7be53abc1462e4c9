// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

const (
	indexVariable = "JOB_COMPLETION_INDEX"
	// maxPrefix is the maximum length of a name before the API server's random suffix.
	maxPrefix = 63 - 5
)

// newPod returns the pod for a place in the Job.
func newPod(job *batchv1.Job, at slot) *corev1.Pod {
	pod := pods.FromTemplate(&job.Spec.Template, job, kind)
	if !isTracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if !isIndexed(job) {
		return pod
	}
	index := strconv.Itoa(at.index)
	pod.GenerateName = prefix(job.Name, index)
	pod.Spec.Hostname = job.Name + "-" + index
	pod.Labels = withEntry(pod.Labels, batchv1.JobCompletionIndexAnnotation, index)
	pod.Annotations = withEntry(pod.Annotations, batchv1.JobCompletionIndexAnnotation, index)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			addIndexVariable(&containers[i])
		}
	}
	if job.Spec.BackoffLimitPerIndex != nil {
		rememberFailures(pod, job, at.replaces)
	}
	return pod
}

// rememberFailures copies the failures of the index to its next pod.
func rememberFailures(pod *corev1.Pod, job *batchv1.Job, replaced *corev1.Pod) {
	counted, ignored := 0, 0
	if replaced != nil {
		all := 0
		counted, all = indexFailures(replaced)
		ignored = all - counted
		if applyFailurePolicy(job.Spec.PodFailurePolicy, replaced).counts() {
			counted++
		} else {
			ignored++
		}
	}
	pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(counted)
	if ignored > 0 {
		pod.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(ignored)
	}
}

// addIndexVariable adds the variable with the index to a container that does not define it.
func addIndexVariable(container *corev1.Container) {
	if slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == indexVariable }) {
		return
	}
	field := fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation)
	container.Env = append(container.Env, corev1.EnvVar{
		Name:      indexVariable,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}},
	})
}

// prefix returns the prefix of generated names. It truncates the Job's name, not the index.
func prefix(name, index string) string {
	suffix := "-" + index + "-"
	return name[:min(len(name), maxPrefix-len(suffix))] + suffix
}

func withEntry(in map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	maps.Copy(out, in)
	out[key] = value
	return out
}
