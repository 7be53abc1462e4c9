// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

type recorder []string

func (r *recorder) AddWarning(_, text string) { *r = append(*r, text) }

// TestWarnings: a creation warns, an update only of what is new, a subresource never; and nothing waits for informers.
func TestWarnings(t *testing.T) {
	plugin := New()
	if plugin.ValidateInitialization() == nil {
		t.Error("initialized without informers")
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	plugin.SetExternalKubeInformerFactory(factory)
	pod := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "mine"}}
	warnings := func(old runtime.Object, operation admission.Operation, subresource string) int {
		var got recorder
		a := admission.NewAttributesRecord(pod, old, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
			corev1.SchemeGroupVersion.WithResource("pods"), subresource, operation, &metav1.CreateOptions{}, false, nil)
		if err := plugin.Validate(warning.WithWarningRecorder(context.Background(), &got), a, nil); err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	got := []int{warnings(nil, admission.Create, "")}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	got = append(got, warnings(nil, admission.Create, ""), warnings(pod, admission.Update, ""), warnings(&corev1.Pod{}, admission.Update, ""),
		warnings(&corev1.Pod{}, admission.Update, "status"))
	if diff := cmp.Diff([]int{0, 1, 0, 1, 0}, got); diff != "" {
		t.Error(diff)
	}
}
