// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func podRequesting(node string, generation int64, cpu, memory string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p", Generation: generation},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{
			{Name: "a", Resources: corev1.ResourceRequirements{Requests: amounts(cpu, memory)}},
		}},
	}
}

func TestResize(t *testing.T) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	plugin := NewResize()
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetReadyFunc(func() bool { return true })
	for name, labels := range map[string]map[string]string{"linux": {"kubernetes.io/os": "linux"}, "plain": nil, "windows": {"kubernetes.io/os": "windows"}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NodeStatus{Allocatable: amounts("4", "8Gi")}}
		if err := factory.Core().V1().Nodes().Informer().GetIndexer().Add(node); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, resource string
		now, old       runtime.Object
		want           string
		cause          metav1.CauseType
	}{
		{"fits", "pods/resize", podRequesting("linux", 2, "4", "8Gi"), podRequesting("linux", 1, "1", "1Gi"), "", ""},
		{"fits on a node without labels", "pods/resize", podRequesting("plain", 2, "4", "8Gi"), podRequesting("plain", 1, "1", "1Gi"), "", ""},
		{"too much CPU", "pods/resize", podRequesting("linux", 2, "4001m", "8Gi"), podRequesting("linux", 1, "1", "1Gi"),
			"node didn't have enough allocatable resources: cpu, requested: 4001, allocatable: 4000", "NodeCapacity"},
		{"too much of both", "pods/resize", podRequesting("linux", 2, "5", "9Gi"), podRequesting("linux", 1, "1", "1Gi"),
			"node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 4000; memory, requested: 9663676416, allocatable: 8589934592", "NodeCapacity"},
		{"another operating system", "pods/resize", podRequesting("windows", 2, "1", "1Gi"), podRequesting("windows", 1, "2", "1Gi"),
			`pod resize is only supported on linux nodes, node "windows" is "windows"`, "UnsupportedPlatform"},
		{"the node is missing", "pods/resize", podRequesting("gone", 2, "1", "1Gi"), podRequesting("gone", 1, "2", "1Gi"), `node "gone" not found`, ""},
		{"not bound", "pods/resize", podRequesting("", 2, "5", "1Gi"), podRequesting("", 1, "2", "1Gi"), "", ""},
		{"spec unchanged", "pods/resize", podRequesting("windows", 1, "5", "1Gi"), podRequesting("windows", 1, "5", "1Gi"), "", ""},
		{"the pod itself", "pods", podRequesting("windows", 2, "5", "1Gi"), podRequesting("windows", 1, "2", "1Gi"), "", ""},
	} {
		r := admissiontest.Request{Operation: admission.Update, Resource: test.resource, Object: test.now, Old: test.old}
		err := plugin.Validate(t.Context(), r.Attributes(), nil)
		if test.want == "" && err == nil {
			continue
		}
		if test.want == "" || !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
			continue
		}
		if got, has := apierrors.StatusCause(err, test.cause); has != (test.cause != "") {
			t.Errorf("%s: cause %v", test.name, got)
		}
	}
}

func TestResizeOfAnotherKind(t *testing.T) {
	for _, r := range []admissiontest.Request{
		{Operation: admission.Update, Resource: "pods/resize", Object: &corev1.Node{}, Old: podRequesting("a", 1, "1", "1")},
		{Operation: admission.Update, Resource: "pods/resize", Object: podRequesting("a", 1, "1", "1"), Old: &corev1.Node{}},
	} {
		var status *apierrors.StatusError
		if err := NewResize().Validate(t.Context(), r.Attributes(), nil); !errors.As(err, &status) || status.ErrStatus.Reason != metav1.StatusReasonBadRequest {
			t.Errorf("%T for %T: %v", r.Object, r.Old, err)
		}
	}
}
