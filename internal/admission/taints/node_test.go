// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package taints

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func TestNode(t *testing.T) {
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	evicting := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	tests := []struct {
		name, resource string
		give, want     []corev1.Taint
	}{
		{"new node", "nodes", nil, []corev1.Taint{notReady}},
		{"already tainted", "nodes", []corev1.Taint{notReady}, []corev1.Taint{notReady}},
		{"tainted with another effect", "nodes", []corev1.Taint{evicting}, []corev1.Taint{evicting, notReady}},
		{"status", "nodes/status", nil, nil},
		{"another kind", "pods", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: tt.give}}
			r := admissiontest.Request{Operation: admission.Create, Resource: tt.resource, Object: node}
			if err := NewNode().Admit(context.Background(), r.Attributes(), nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, node.Spec.Taints); diff != "" {
				t.Error(diff)
			}
		})
	}
	if NewNode().Handles(admission.Update) {
		t.Error("an update would taint a ready node again")
	}
}
