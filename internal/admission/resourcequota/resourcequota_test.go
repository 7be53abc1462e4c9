// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	plugin "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func amounts(cpu, secrets string) corev1.ResourceList {
	return corev1.ResourceList{"requests.cpu": resource.MustParse(cpu), "secrets": resource.MustParse(secrets)}
}

func pod(cpu string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
	}
	return p
}

// The plugin refuses requests that exceed a quota, and charges the requests that it admits.
func TestPlugin(t *testing.T) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "q", ResourceVersion: "1"},
		Status: corev1.ResourceQuotaStatus{Hard: amounts("2", "0"), Used: amounts("1", "0")}}
	client := fake.NewClientset(q)
	factory := informers.NewSharedInformerFactory(client, 0)
	p, err := plugin.NewResourceQuota(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.SetDrainedNotification(t.Context().Done())
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(factory)
	Initializer(clocktesting.NewFakePassiveClock(time.Time{}), client).Initialize(p)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if list, err := factory.Core().V1().ResourceQuotas().Lister().List(labels.Everything()); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	create := func(resource string, obj runtime.Object) error {
		return p.Validate(t.Context(), admissiontest.Request{Operation: admission.Create, Resource: resource, Object: obj}.Attributes(), nil)
	}
	meta := metav1.ObjectMeta{Namespace: "app", Name: "x"}
	for _, test := range []struct {
		resource string
		obj      runtime.Object
		want     string
	}{
		{"pods", pod("2"), "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=1, limited: requests.cpu=2"},
		{"pods", pod(""), "failed quota: q: must specify requests.cpu for: a"},
		{"pods", pod("1"), ""},
		{"secrets", &corev1.Secret{ObjectMeta: meta}, "exceeded quota: q, requested: secrets=1, used: secrets=0, limited: secrets=0"},
		{"events", &corev1.Event{ObjectMeta: meta}, ""},
	} {
		err := create(test.resource, test.obj)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasSuffix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.resource, err, test.want)
		}
	}
	stored, err := client.CoreV1().ResourceQuotas("app").Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cpu, secrets := stored.Status.Used["requests.cpu"], stored.Status.Used["secrets"]; cpu.String() != "2" || secrets.String() != "0" {
		t.Errorf("used: %v", stored.Status.Used)
	}
}
