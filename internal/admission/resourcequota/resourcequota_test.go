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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugin "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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

// newPlugin returns the plugin of a server with a quota, which may serve former groups.
func newPlugin(t *testing.T, q *corev1.ResourceQuota, servesFormer bool) (*plugin.QuotaAdmission, kubernetes.Interface) {
	t.Helper()
	client := fake.NewClientset(q)
	factory := informers.NewSharedInformerFactory(client, 0)
	p, err := plugin.NewResourceQuota(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.SetDrainedNotification(t.Context().Done())
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(factory)
	serves := func(schema.GroupVersionResource) bool { return servesFormer }
	Initializer(clocktesting.NewFakePassiveClock(time.Time{}), client, serves).Initialize(p)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if list, err := factory.Core().V1().ResourceQuotas().Lister().List(labels.Everything()); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return p, client
}

// The plugin refuses requests that exceed a quota, and charges the requests that it admits.
func TestPlugin(t *testing.T) {
	p, client := newPlugin(t, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "q", ResourceVersion: "1"},
		Status: corev1.ResourceQuotaStatus{Hard: amounts("2", "0"), Used: amounts("1", "0")}}, false)
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

// A Deployment is counted by the names of both of its groups, whichever group the request is in, if the
// former group is served.
func TestFormerGroup(t *testing.T) {
	counts := func(n string, names ...corev1.ResourceName) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, name := range names {
			list[name] = resource.MustParse(n)
		}
		return list
	}
	const present, former = corev1.ResourceName("count/deployments.apps"), corev1.ResourceName("count/deployments.extensions")
	for name, test := range map[string]struct {
		hard, used corev1.ResourceList
		served     bool
		want       map[string]string
	}{
		"present name": {counts("1", present), counts("1", present), true, map[string]string{
			"deployments.apps":       "exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1",
			"deployments.extensions": "exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1"}},
		"former name": {counts("1", former), counts("1", former), true, map[string]string{
			"deployments.apps":       "exceeded quota: q, requested: count/deployments.extensions=1, used: count/deployments.extensions=1, limited: count/deployments.extensions=1",
			"deployments.extensions": "exceeded quota: q, requested: count/deployments.extensions=1, used: count/deployments.extensions=1, limited: count/deployments.extensions=1",
			"statefulsets.apps":      ""}},
		"former group not served": {counts("1", former), nil, false, map[string]string{"deployments.apps": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newPlugin(t, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "q", ResourceVersion: "1"},
				Status: corev1.ResourceQuotaStatus{Hard: test.hard, Used: test.used}}, test.served)
			for of, want := range test.want {
				object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "x"}}
				kind := schema.ParseGroupResource(of)
				attributes := admission.NewAttributesRecord(object, nil, schema.GroupVersionKind{}, "app", "x", kind.WithVersion("v1"), "", admission.Create, nil, false, nil)
				err := p.Validate(t.Context(), attributes, nil)
				if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
					t.Errorf("%s: %v, want %q", of, err, want)
				}
			}
		})
	}
}
