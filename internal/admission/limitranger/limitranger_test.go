// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package limitranger

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

// list parses a list such as "cpu=1 memory=1Gi".
func list(text string) corev1.ResourceList {
	if text == "" {
		return nil
	}
	l := corev1.ResourceList{}
	for _, item := range strings.Fields(text) {
		name, value, _ := strings.Cut(item, "=")
		l[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return l
}

func container(name, requests, limits string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}}
}

func limitRange(name string, items ...corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: name}, Spec: corev1.LimitRangeSpec{Limits: items}}
}

type fixture struct {
	plugin *Plugin
	client *fake.Clientset
	clock  *clocktesting.FakePassiveClock
}

func newFixture(t *testing.T, cached ...*corev1.LimitRange) fixture {
	t.Helper()
	f := fixture{client: fake.NewClientset(), clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	factory := informers.NewSharedInformerFactory(nil, 0)
	f.plugin = New(f.clock)
	f.plugin.SetExternalKubeInformerFactory(factory)
	f.plugin.SetReadyFunc(func() bool { return true })
	f.plugin.SetExternalKubeClientSet(f.client)
	for _, r := range cached {
		if err := factory.Core().V1().LimitRanges().Informer().GetIndexer().Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f fixture) run(r admissiontest.Request) error {
	a := r.Attributes()
	if err := f.plugin.Admit(context.Background(), a, nil); err != nil {
		return err
	}
	return f.plugin.Validate(context.Background(), a, nil)
}

func pod(init []corev1.Container, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p"}, Spec: corev1.PodSpec{InitContainers: init, Containers: containers}}
}

func TestDefaults(t *testing.T) {
	r := limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: list("cpu=100m memory=64Mi"), Default: list("cpu=200m memory=128Mi")},
		corev1.LimitRangeItem{Type: corev1.LimitTypePod, Default: list("cpu=9")})
	p := pod([]corev1.Container{container("i", "", "cpu=1")}, container("all", "cpu=1 memory=1Gi", "cpu=1 memory=1Gi"), container("none", "", ""))
	if err := newFixture(t, r).run(admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: p}); err != nil {
		t.Fatal(err)
	}
	want := pod([]corev1.Container{container("i", "cpu=100m memory=64Mi", "cpu=1 memory=128Mi")},
		container("all", "cpu=1 memory=1Gi", "cpu=1 memory=1Gi"), container("none", "cpu=100m memory=64Mi", "cpu=200m memory=128Mi"))
	want.Annotations = map[string]string{"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container none; cpu, memory limit for container none; " +
		"cpu, memory request for init container i; memory limit for init container i"}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
}

func TestPodLimits(t *testing.T) {
	item := func(kind corev1.LimitType, min, max, ratio string) *corev1.LimitRange {
		return limitRange("r", corev1.LimitRangeItem{Type: kind, Min: list(min), Max: list(max), MaxLimitRequestRatio: list(ratio)})
	}
	sidecar := container("s", "cpu=1", "cpu=1")
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	c, p := corev1.LimitTypeContainer, corev1.LimitTypePod
	tests := []struct {
		name string
		r    *corev1.LimitRange
		pod  *corev1.Pod
		want string
	}{
		{"within the limits", item(c, "cpu=100m", "cpu=2", "cpu=3"), pod(nil, container("a", "cpu=1", "cpu=2")), ""},
		{"no request", item(c, "cpu=100m", "", ""), pod(nil, container("a", "", "cpu=2")), "minimum cpu usage per Container is 100m.  No request is specified"},
		{"request too small", item(c, "cpu=100m", "", ""), pod(nil, container("a", "cpu=99m", "")), "minimum cpu usage per Container is 100m, but request is 99m"},
		{"limit too small", item(c, "cpu=100m", "", ""), pod(nil, container("a", "cpu=100m", "cpu=50m")), "minimum cpu usage per Container is 100m, but limit is 50m"},
		{"no limit", item(c, "", "cpu=2", ""), pod(nil, container("a", "cpu=1", "")), "maximum cpu usage per Container is 2.  No limit is specified"},
		{"limit too large", item(c, "", "cpu=2", ""), pod(nil, container("a", "cpu=1", "cpu=3")), "maximum cpu usage per Container is 2, but limit is 3"},
		{"request too large", item(c, "", "cpu=2", ""), pod(nil, container("a", "cpu=2500m", "cpu=2")), "maximum cpu usage per Container is 2, but request is 2500m"},
		{"init container", item(c, "", "cpu=2", ""), pod([]corev1.Container{container("i", "", "cpu=3")}, container("a", "", "cpu=1")), "maximum cpu usage per Container is 2, but limit is 3"},
		{"ratio without request", item(c, "", "", "cpu=2"), pod(nil, container("a", "cpu=0", "cpu=1")), "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"},
		{"ratio without limit", item(c, "", "", "cpu=2"), pod(nil, container("a", "cpu=1", "")), "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"},
		{"ratio too large", item(c, "", "", "cpu=2"), pod(nil, container("a", "cpu=1", "cpu=2500m")), "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000"},
		{"fractional ratio", item(c, "", "", "cpu=1500m"), pod(nil, container("a", "cpu=1", "cpu=1500m")), ""},
		{"pod sums its containers", item(p, "", "cpu=2", ""), pod(nil, container("a", "", "cpu=1"), container("b", "", "cpu=1500m")), "maximum cpu usage per Pod is 2, but limit is 2500m"},
		{"init containers run before the others", item(p, "", "cpu=2", ""), pod([]corev1.Container{container("i", "", "cpu=2")}, container("a", "", "cpu=1")), ""},
		{"sidecars run beside the others", item(p, "", "cpu=2", ""), pod([]corev1.Container{sidecar}, container("a", "", "cpu=1500m")), "maximum cpu usage per Pod is 2, but limit is 2500m"},
		{"several violations", item(c, "cpu=1", "memory=1Gi", ""), pod(nil, container("a", "", "")),
			"[minimum cpu usage per Container is 1.  No request is specified, maximum memory usage per Container is 1Gi.  No limit is specified]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := newFixture(t, tt.r).run(admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: tt.pod})
			if tt.want == "" && err != nil || tt.want != "" && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), "is forbidden: "+tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestClaims(t *testing.T) {
	r := limitRange("r", corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage=1Gi"), Max: list("storage=5Gi")})
	for size, want := range map[string]string{
		"":             "No request is specified",
		"storage=1Gi":  "",
		"storage=5Gi":  "",
		"storage=1Mi":  "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
		"storage=10Gi": "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi",
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: list(size)}}}
		err := newFixture(t, r).run(admissiontest.Request{Operation: admission.Create, Resource: "persistentvolumeclaims", Object: claim})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", size, err, want)
		}
	}
}

func TestLimitedRequests(t *testing.T) {
	r := limitRange("r", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("cpu=1")})
	big := pod(nil, container("a", "", "cpu=2"))
	deleted := big.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(0, 0)))
	elsewhere := big.DeepCopy()
	elsewhere.Namespace = "other"
	tests := []struct {
		name    string
		request admissiontest.Request
		refused bool
	}{
		{"create", admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: big}, true},
		{"update", admissiontest.Request{Operation: admission.Update, Resource: "pods", Object: big, Old: big}, false},
		{"resize", admissiontest.Request{Operation: admission.Update, Resource: "pods/resize", Object: big, Old: big}, true},
		{"resize of a pod that is being deleted", admissiontest.Request{Operation: admission.Update, Resource: "pods/resize", Object: big, Old: deleted}, false},
		{"status", admissiontest.Request{Operation: admission.Update, Resource: "pods/status", Object: big, Old: big}, false},
		{"another namespace", admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: elsewhere}, false},
		{"another kind", admissiontest.Request{Operation: admission.Create, Resource: "configmaps", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "app"}}}, false},
	}
	for _, tt := range tests {
		if err := newFixture(t, r).run(tt.request); (err != nil) != tt.refused {
			t.Errorf("%s: %v, want refused %v", tt.name, err, tt.refused)
		}
	}
}

func TestLiveLookup(t *testing.T) {
	f := newFixture(t)
	create := func() error {
		return f.run(admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: pod(nil, container("a", "", "cpu=2"))})
	}
	lookups := func() int {
		n := 0
		for _, action := range f.client.Actions() {
			if action.GetVerb() == "list" {
				n++
			}
		}
		return n
	}
	for range 3 {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	if n := lookups(); n != 1 {
		t.Errorf("%d lookups for a namespace without limits, want 1", n)
	}
	var obj runtime.Object = limitRange("late", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("cpu=1")})
	if err := f.client.Tracker().Add(obj); err != nil {
		t.Fatal(err)
	}
	f.clock.SetTime(time.Unix(0, 0).Add(liveLookupTTL))
	if err := create(); err == nil {
		t.Error("a LimitRange that is not in the cache was not looked up")
	}
	if n := lookups(); n != 2 {
		t.Errorf("%d lookups, want 2", n)
	}
}
