// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimeclass

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func cpu(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
}

func newPlugin(t *testing.T) *Plugin {
	t.Helper()
	vm := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Overhead: &nodev1.Overhead{PodFixed: cpu("250m")},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "vm", Operator: corev1.TolerationOpExists}}}}
	plain := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	factory := informers.NewSharedInformerFactory(nil, 0)
	p := New()
	p.SetExternalKubeInformerFactory(factory)
	// The cache is stale: it has only one of the two classes.
	p.SetExternalKubeClientSet(fake.NewClientset(vm, plain))
	if err := factory.Node().V1().RuntimeClasses().Informer().GetIndexer().Add(vm); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAdmit(t *testing.T) {
	vmToleration := corev1.Toleration{Key: "vm", Operator: corev1.TolerationOpExists}
	tests := []struct {
		name       string
		class      *string
		give, want corev1.PodSpec
		err        string
	}{
		{name: "no class"},
		{name: "overhead without a class", give: corev1.PodSpec{Overhead: cpu("1")}, err: "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		{name: "a class without overhead or scheduling", class: ptr.To("plain")},
		{name: "overhead, nodes and tolerations", class: ptr.To("vm"),
			want: corev1.PodSpec{Overhead: cpu("250m"), NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []corev1.Toleration{vmToleration}}},
		{name: "nodes and tolerations are added to the pod's own", class: ptr.To("vm"),
			give: corev1.PodSpec{Overhead: cpu("0.25"), NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []corev1.Toleration{{Key: "gpu"}}},
			want: corev1.PodSpec{Overhead: cpu("250m"), NodeSelector: map[string]string{"disk": "ssd", "vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "gpu"}, vmToleration}}},
		{name: "another overhead", class: ptr.To("vm"), give: corev1.PodSpec{Overhead: cpu("1")}, err: "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"},
		{name: "conflicting node selector", class: ptr.To("vm"), give: corev1.PodSpec{NodeSelector: map[string]string{"vm": "no"}},
			err: "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no"},
		{name: "no such class", class: ptr.To("gone"), err: `pods "p" is forbidden: pod rejected: RuntimeClass "gone" not found`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p"}, Spec: tt.give}
			pod.Spec.RuntimeClassName = tt.class
			a := admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: pod}.Attributes()
			plugin := newPlugin(t)
			err := plugin.Admit(context.Background(), a, nil)
			if err == nil {
				err = plugin.Validate(context.Background(), a, nil)
			}
			if tt.err != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.want.RuntimeClassName = tt.class
			if diff := cmp.Diff(tt.want, pod.Spec); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMergeTolerations(t *testing.T) {
	exists := func(key string, effect corev1.TaintEffect, seconds *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect, TolerationSeconds: seconds}
	}
	equal := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpEqual, Value: "1", Effect: corev1.TaintEffectNoSchedule}
	list := func(all ...corev1.Toleration) []corev1.Toleration { return all }
	tests := []struct {
		name                string
		first, second, want []corev1.Toleration
	}{
		{"both empty", nil, nil, nil},
		{"equal tolerations are merged", list(equal), list(equal), list(equal)},
		{"the wider one is kept, if it is second", list(equal), list(exists("a", "", nil)), list(exists("a", "", nil))},
		{"the wider one is kept, if it is first", list(exists("a", "", nil)), list(equal), list(exists("a", "", nil))},
		{"one for all keys is kept", list(equal, exists("b", "", nil)), list(exists("", "", nil)), list(exists("", "", nil))},
		{"different effects are kept", list(equal), list(exists("a", corev1.TaintEffectNoExecute, nil)), list(equal, exists("a", corev1.TaintEffectNoExecute, nil))},
		{"the longer period is kept", list(exists("a", corev1.TaintEffectNoExecute, ptr.To[int64](5))), list(exists("a", corev1.TaintEffectNoExecute, ptr.To[int64](9))), list(exists("a", corev1.TaintEffectNoExecute, ptr.To[int64](9)))},
		{"the one without a limit is kept", list(exists("a", corev1.TaintEffectNoExecute, nil)), list(exists("a", corev1.TaintEffectNoExecute, ptr.To[int64](9))), list(exists("a", corev1.TaintEffectNoExecute, nil))},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, mergeTolerations(tt.first, tt.second)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
