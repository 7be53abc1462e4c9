// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

const (
	// hashLabel holds the hash of a pod's revision.
	hashLabel = appsv1.DefaultDaemonSetUniqueLabelKey
	// generationLabel identified the template before revisions existed. It is still set
	// and accepted.
	generationLabel = extensionsv1beta1.DaemonSetTemplateGenerationKey
)

// stamp holds the labels that identify the pods of a template.
type stamp struct {
	hash string
	// generation is empty if the DaemonSet has none.
	generation string
}

func stampOf(ds *appsv1.DaemonSet, hash string) stamp {
	s := stamp{hash: hash}
	if n, err := strconv.ParseInt(ds.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64); err == nil {
		s.generation = strconv.FormatInt(n, 10)
	}
	return s
}

// isOn reports whether the pod has one of the labels.
func (s stamp) isOn(pod *corev1.Pod) bool {
	return pod.Labels[hashLabel] == s.hash || s.generation != "" && pod.Labels[generationLabel] == s.generation
}

// newPod returns a pod of the DaemonSet for a node.
func newPod(ds *appsv1.DaemonSet, node string, s stamp) *corev1.Pod {
	pod := pods.FromTemplate(&ds.Spec.Template, ds, kind)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[hashLabel] = s.hash
	if s.generation != "" {
		pod.Labels[generationLabel] = s.generation
	}
	pod.Spec.Tolerations = withDaemonTolerations(&pod.Spec)
	requireNode(&pod.Spec, node)
	return pod
}

// requireNode restricts the pod to the node by affinity. It replaces the template's required terms,
// which the node matches already.
func requireNode(spec *corev1.PodSpec, node string) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}
}

// nodeOf returns the node that the pod is on or created for. It is "" for an adopted pod without
// a node.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// boundThenOldest orders pods that are bound to a node before others, and older ones first.
func boundThenOldest(a, b *corev1.Pod) int {
	return cmp.Or(
		boundFirst(a, b),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

func boundFirst(a, b *corev1.Pod) int {
	aBound, bBound := a.Spec.NodeName != "", b.Spec.NodeName != ""
	switch {
	case aBound == bBound:
		return 0
	case aBound:
		return -1
	default:
		return 1
	}
}
