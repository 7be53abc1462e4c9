// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podsecurity

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

// warnings records the warnings for the client.
type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func pod(namespace string, edit ...func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	for _, e := range edit {
		e(&p.Spec)
	}
	return p
}

func hostNetwork(s *corev1.PodSpec) { s.HostNetwork = true }

// newPlugin returns a plugin with several namespaces. The namespace "late" is in the API, but
// not in its cache.
func newPlugin(t *testing.T, pods ...*corev1.Pod) *Plugin {
	enforce := func(level string) map[string]string {
		return map[string]string{"pod-security.kubernetes.io/enforce": level}
	}
	client := fake.NewClientset(namespace("late", enforce("baseline")))
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin := New()
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetReadyFunc(func() bool { return true })
	if err := plugin.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []*corev1.Namespace{
		namespace("free", nil), namespace("baseline", enforce("baseline")), namespace("restricted", enforce("restricted")),
		namespace("warned", map[string]string{"pod-security.kubernetes.io/warn": "baseline"}),
	} {
		if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		if err := factory.Core().V1().Pods().Informer().GetIndexer().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	return plugin
}

const forbidden = `pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`

func TestPods(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "warned", Name: "d"}}
	deployment.Spec.Template.Spec = pod("warned", hostNetwork).Spec
	for name, test := range map[string]struct {
		resource string
		object   runtime.Object
		want     string
		warnings []string
	}{
		"privileged":               {"pods", pod("free", hostNetwork), "", nil},
		"allowed by baseline":      {"pods", pod("baseline"), "", nil},
		"forbidden by baseline":    {"pods", pod("baseline", hostNetwork), forbidden, nil},
		"forbidden by restricted":  {"pods", pod("restricted"), `pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`, nil},
		"not in the cache":         {"pods", pod("late", hostNetwork), forbidden, nil},
		"a warning":                {"pods", pod("warned", hostNetwork), "", []string{`would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`}},
		"a warning for a template": {"deployments.apps", deployment, "", []string{`would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`}},
		"a subresource":            {"pods/status", pod("baseline", hostNetwork), "", nil},
		"another kind":             {"configmaps", &corev1.ConfigMap{}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got warnings
			ctx := warning.WithWarningRecorder(t.Context(), &got)
			r := admissiontest.Request{Operation: admission.Create, Resource: test.resource, Object: test.object}
			err := newPlugin(t).Validate(ctx, r.Attributes(), nil)
			if test.want == "" && err != nil || test.want != "" && (!apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if diff := cmp.Diff(test.warnings, []string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	label := func(key, value string) *corev1.Namespace {
		return namespace("free", map[string]string{"pod-security.kubernetes.io/" + key: value})
	}
	var got warnings
	plugin := newPlugin(t, pod("free", hostNetwork))
	validate := func(now, old *corev1.Namespace) error {
		r := admissiontest.Request{Operation: admission.Create, Resource: "namespaces", Object: now}
		if old != nil {
			r.Operation, r.Old = admission.Update, old
		}
		return plugin.Validate(warning.WithWarningRecorder(context.Background(), &got), r.Attributes(), nil)
	}
	err := validate(label("enforce", "lax"), nil)
	if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != http.StatusUnprocessableEntity ||
		len(status.Status().Details.Causes) != 1 || status.Status().Details.Causes[0].Field != "metadata.labels[pod-security.kubernetes.io/enforce]" {
		t.Errorf("an invalid level: %v", err)
	}
	if err := validate(label("warn", "lax"), label("warn", "lax")); err != nil {
		t.Errorf("an unchanged invalid level: %v", err)
	}
	if got != nil {
		t.Errorf("warnings: %q", got)
	}
	if err := validate(label("enforce", "baseline"), namespace("free", nil)); err != nil {
		t.Errorf("a valid level: %v", err)
	}
	want := warnings{`existing pods in namespace "free" violate the new PodSecurity enforce level "baseline:latest"`, "p: host namespaces"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings about existing pods: %s", diff)
	}
}
