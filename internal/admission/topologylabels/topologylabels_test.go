// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package topologylabels

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func TestAdmit(t *testing.T) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	plugin := New()
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetReadyFunc(func() bool { return true })
	for name, labels := range map[string]map[string]string{
		"full":  {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "topology.kubernetes.io/other": "o", "disk": "ssd"},
		"zone":  {"topology.kubernetes.io/zone": "z"},
		"plain": nil,
	} {
		if err := factory.Core().V1().Nodes().Informer().GetIndexer().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	both := map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
	binding := func(kind, name string) *corev1.Binding {
		return &corev1.Binding{Target: corev1.ObjectReference{Kind: kind, Name: name}}
	}
	pod := func(node string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeName: node}}
	}
	tests := []struct {
		name     string
		resource string
		object   runtime.Object
		want     map[string]string
	}{
		{"binding", "pods/binding", binding("Node", "full"), both},
		{"binding to a node with a zone only", "pods/binding", binding("Node", "zone"), map[string]string{"topology.kubernetes.io/zone": "z"}},
		{"binding to a plain node", "pods/binding", binding("Node", "plain"), nil},
		{"binding to a missing node", "pods/binding", binding("Node", "gone"), nil},
		{"binding to another kind", "pods/binding", binding("Planet", "full"), nil},
		{"pod on a node", "pods", pod("full", nil), both},
		{"node labels override the pod's", "pods", pod("zone", map[string]string{"topology.kubernetes.io/zone": "mine", "app": "a"}),
			map[string]string{"topology.kubernetes.io/zone": "z", "app": "a"}},
		{"pod without a node", "pods", pod("", nil), nil},
		{"another subresource", "pods/status", pod("full", nil), nil},
		{"another kind", "configmaps", pod("full", nil), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := admissiontest.Request{Operation: admission.Create, Resource: tt.resource, Object: tt.object}
			if err := plugin.Admit(context.Background(), r.Attributes(), nil); err != nil {
				t.Fatal(err)
			}
			m, err := meta.Accessor(tt.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, m.GetLabels()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
