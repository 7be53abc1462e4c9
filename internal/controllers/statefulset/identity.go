// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// ordinalOf returns the ordinal in the name of a pod, and false if it is not a name of the
// StatefulSet's pods.
func ordinalOf(set *appsv1.StatefulSet, pod *corev1.Pod) (ordinal int, ok bool) {
	return parseOrdinal(set.Name, pod.Name)
}

// parseOrdinal returns the ordinal in a name of the form <parent>-<ordinal>.
func parseOrdinal(parent, name string) (ordinal int, ok bool) {
	digits, ok := strings.CutPrefix(name, parent+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil && strconv.FormatUint(n, 10) == digits
}

// firstOrdinal returns the ordinal of the first replica (KEP-3335).
func firstOrdinal(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func podName(set *appsv1.StatefulSet, ordinal int) string {
	return fmt.Sprintf("%s-%d", set.Name, ordinal)
}

func claimName(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", template.Name, set.Name, ordinal)
}

// newPod returns the pod of an ordinal at a revision.
func newPod(set *appsv1.StatefulSet, r revision, ordinal int) *corev1.Pod {
	pod := pods.FromTemplate(r.template, set, kind)
	pod.Name = podName(set, ordinal)
	identify(pod, ordinal)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = r.name
	pod.Spec.Hostname = pod.Name
	pod.Spec.Subdomain = set.Spec.ServiceName
	mount(set, pod, ordinal)
	return pod
}

// identify sets the labels that identify a pod.
func identify(pod *corev1.Pod, ordinal int) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
}

// isIdentified reports whether a pod has the label with its name. Pods from before the index
// label existed do not get it.
func isIdentified(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name
}

// mount gives the pod a volume for each claim template. It replaces a volume of the same name.
func mount(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) {
	claimed := map[string]bool{}
	var volumes []corev1.Volume
	for i := range set.Spec.VolumeClaimTemplates {
		template := &set.Spec.VolumeClaimTemplates[i]
		claimed[template.Name] = true
		volumes = append(volumes, corev1.Volume{Name: template.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, template, ordinal)},
		}})
	}
	for _, volume := range pod.Spec.Volumes {
		if !claimed[volume.Name] {
			volumes = append(volumes, volume)
		}
	}
	pod.Spec.Volumes = volumes
}

// isMounted reports whether the pod has a volume for each claim template.
func isMounted(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) bool {
	mounted := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			mounted[volume.Name] = volume.PersistentVolumeClaim.ClaimName
		}
	}
	for i := range set.Spec.VolumeClaimTemplates {
		template := &set.Spec.VolumeClaimTemplates[i]
		if mounted[template.Name] != claimName(set, template, ordinal) {
			return false
		}
	}
	return true
}

// newClaim returns the claim of a template for an ordinal. It has the labels of the template
// and of the selector.
func newClaim(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) *corev1.PersistentVolumeClaim {
	claim := template.DeepCopy()
	claim.Namespace, claim.Name = set.Namespace, claimName(set, template, ordinal)
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	return claim
}

func replicasOf(set *appsv1.StatefulSet) int { return int(ptr.Deref(set.Spec.Replicas, 1)) }
