// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

// podWith returns a pod with a pod-level request for CPU.
func podWith(node string, generation int64, cpu string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p", Generation: generation}, Spec: corev1.PodSpec{NodeName: node}}
	if cpu != "" {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	return p
}

func TestDeclaredFeatures(t *testing.T) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	plugin := NewDeclaredFeatures()
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetReadyFunc(func() bool { return true })
	for name, declared := range map[string][]string{"able": {"InPlacePodLevelResourcesVerticalScaling"}, "silent": nil} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{DeclaredFeatures: declared}}
		if err := factory.Core().V1().Nodes().Informer().GetIndexer().Add(node); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, resource string
		now, old       *corev1.Pod
		want           string
	}{
		{"declared", "pods/resize", podWith("able", 2, "2"), podWith("able", 1, "1"), ""},
		{"not declared", "pods/resize", podWith("silent", 2, "2"), podWith("silent", 1, "1"),
			`pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node "silent"`},
		{"the pod itself", "pods", podWith("silent", 2, "2"), podWith("silent", 1, "1"),
			`pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node "silent"`},
		{"the node is missing", "pods/resize", podWith("gone", 2, "2"), podWith("gone", 1, "1"), `node "gone" not found`},
		{"no feature required", "pods/resize", podWith("gone", 2, ""), podWith("gone", 1, ""), ""},
		{"not bound", "pods/resize", podWith("", 2, "2"), podWith("", 1, "1"), ""},
		{"spec unchanged", "pods", podWith("silent", 1, "2"), podWith("silent", 1, "1"), ""},
		{"another subresource", "pods/status", podWith("silent", 2, "2"), podWith("silent", 1, "1"), ""},
		{"another kind", "configmaps", podWith("silent", 2, "2"), podWith("silent", 1, "1"), ""},
	} {
		r := admissiontest.Request{Operation: admission.Update, Resource: test.resource, Object: test.now, Old: test.old}
		err := plugin.Validate(t.Context(), r.Attributes(), nil)
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
