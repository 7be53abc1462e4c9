// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package taints

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func TestTolerations(t *testing.T) {
	five := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}
	}
	notReady, unreachable := five("node.kubernetes.io/not-ready"), five("node.kubernetes.io/unreachable")
	short := corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](5)}
	anyEffect := corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists}
	noSchedule := corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	other := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	tests := []struct {
		name       string
		resource   string
		give, want []corev1.Toleration
	}{
		{"no tolerations", "pods", nil, []corev1.Toleration{notReady, unreachable}},
		{"unrelated toleration", "pods", []corev1.Toleration{other}, []corev1.Toleration{other, notReady, unreachable}},
		{"toleration with another period", "pods", []corev1.Toleration{short}, []corev1.Toleration{short, unreachable}},
		{"any effect", "pods", []corev1.Toleration{anyEffect}, []corev1.Toleration{anyEffect, notReady}},
		{"another effect", "pods", []corev1.Toleration{noSchedule}, []corev1.Toleration{noSchedule, notReady, unreachable}},
		{"tolerates all taints", "pods", []corev1.Toleration{everything}, []corev1.Toleration{everything}},
		{"admitted a second time", "pods", []corev1.Toleration{notReady, unreachable}, []corev1.Toleration{notReady, unreachable}},
		{"subresource", "pods/status", nil, nil},
		{"another kind", "nodes", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tt.give}}
			r := admissiontest.Request{Operation: admission.Create, Resource: tt.resource, Object: pod}
			if err := NewTolerations().Admit(context.Background(), r.Attributes(), nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, pod.Spec.Tolerations); diff != "" {
				t.Error(diff)
			}
		})
	}
}
