// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/randfill"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// FuzzValidatePod checks that no pod makes a check panic, and that no check changes the pod.
func FuzzValidatePod(f *testing.F) {
	for _, seed := range []string{"", "web", "metadata.labels['app']", "limits.cpu", "a/b:c", "..", "\\\x00", "localhost/"} {
		f.Add([]byte(seed))
		f.Add([]byte(seed + "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/.:-_'[]"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fill := randfill.NewFromGoFuzz(data).NilChance(0.5).NumElements(0, 2).MaxDepth(12).Funcs(
			func(*metav1.Time, randfill.Continue) {},
			func(*metav1.FieldsV1, randfill.Continue) {},
		)
		pod, old := &v1.Pod{}, &v1.Pod{}
		fill.Fill(pod)
		fill.Fill(old)
		before := pod.DeepCopy()

		ValidatePodCreate(&check.Checker{}, pod)
		ValidatePodUpdate(&check.Checker{}, pod, old)
		ValidatePodStatusUpdate(&check.Checker{}, pod, old)
		ValidatePodEphemeralContainersUpdate(&check.Checker{}, pod, old)
		ValidatePodResize(&check.Checker{}, pod, old)
		template := &v1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		ValidatePodTemplateSpec(&check.Checker{}, template, field.NewPath("spec", "template"))
		Warnings(pod)
		TemplateWarnings(template, field.NewPath("spec", "template"))
		if !equality.Semantic.DeepEqual(before, pod) {
			t.Error("a check changed the pod")
		}

		DropAlphaFields(t.Context(), pod, nil)
		Complete(pod)
		ValidatePodCreate(&check.Checker{}, pod)
	})
}
