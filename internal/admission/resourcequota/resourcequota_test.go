// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugin "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// amounts reads "cpu=1 memory=1Gi".
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for item := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(item, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return list
}

// written is the other way round, sorted.
func written(list corev1.ResourceList) string {
	var out []string
	for name, quantity := range list {
		out = append(out, string(name)+"="+quantity.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func evaluatorOf(t *testing.T, plural string, lister quota.ListerForResourceFunc) quota.Evaluator {
	t.Helper()
	e := generic.NewRegistry(Evaluators(lister, clocktesting.NewFakePassiveClock(noon))).Get(corev1.Resource(plural))
	if e == nil {
		t.Fatalf("nobody counts %s", plural)
	}
	return e
}

func wantUsage(t *testing.T, name string, e quota.Evaluator, obj runtime.Object, want string) {
	t.Helper()
	used, err := e.Usage(obj)
	if err != nil {
		t.Fatal(err)
	}
	if got := written(used); got != want {
		t.Errorf("%s:\n got  %s\n want %s", name, got, want)
	}
}

func container(name, requests, limits string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}}
}

func pod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p"}, Spec: corev1.PodSpec{Containers: containers}}
}

func TestPodUsage(t *testing.T) {
	e := evaluatorOf(t, "pods", nil)
	full := pod(container("a", "cpu=1 memory=1Gi", "cpu=2 memory=2Gi"), container("b", "cpu=1 ephemeral-storage=1", "cpu=1 ephemeral-storage=2"))
	const all = "count/pods=1 cpu=2 ephemeral-storage=1 limits.cpu=3 limits.ephemeral-storage=2 limits.memory=2Gi memory=1Gi pods=1 requests.cpu=2 requests.ephemeral-storage=1 requests.memory=1Gi"
	wantUsage(t, "sums", e, full, all)
	devices := pod(container("a", "example.com/gpu=2 hugepages-2Mi=4Mi", "example.com/gpu=2 hugepages-2Mi=4Mi"))
	wantUsage(t, "devices", e, devices, "count/pods=1 hugepages-2Mi=4Mi pods=1 requests.example.com/gpu=2 requests.hugepages-2Mi=4Mi")
	whole := pod(container("a", "", ""))
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=3"), Limits: amounts("cpu=4")}
	wantUsage(t, "pod-level resources", e, whole, "count/pods=1 cpu=3 limits.cpu=4 pods=1 requests.cpu=3")

	ended := full.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	wantUsage(t, "ended", e, ended, "count/pods=1")
	ending := full.DeepCopy()
	ending.DeletionTimestamp, ending.DeletionGracePeriodSeconds = new(metav1.NewTime(noon.Add(-10*time.Second))), new(int64(30))
	wantUsage(t, "ending", e, ending, all)
	ending.DeletionGracePeriodSeconds = new(int64(5))
	wantUsage(t, "should have ended", e, ending, "count/pods=1")
}

func TestRequiredResources(t *testing.T) {
	e := evaluatorOf(t, "pods", nil)
	counted := []corev1.ResourceName{"pods", "cpu", "limits.memory", "requests.ephemeral-storage"}
	p := pod(container("b", "", "memory=1Gi"), container("a", "cpu=1", ""))
	p.Spec.InitContainers = []corev1.Container{container("i", "", "")}
	err := e.Constraints(counted, p)
	if want := "must specify cpu for: b,i; limits.memory for: a,i"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=1")}
	if err := e.Constraints(counted, p); err != nil {
		t.Errorf("with pod-level resources: %v", err)
	}
	if err := e.Constraints(counted, pod(container("a", "cpu=1", "memory=1Gi"))); err != nil {
		t.Error(err)
	}
	if err := e.Constraints(counted, &corev1.Service{}); err == nil {
		t.Error("a Service passed for a pod")
	}
}

func TestScopes(t *testing.T) {
	e := evaluatorOf(t, "pods", nil)
	limited := pod(container("a", "cpu=1", ""))
	limited.Spec.ActiveDeadlineSeconds = new(int64(5))
	limited.Spec.PriorityClassName = "high"
	near := pod(container("a", "", ""))
	near.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"other"}}}}}}
	scope := func(name corev1.ResourceQuotaScope) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpExists}
	}
	class := func(operator corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: "PriorityClass", Operator: operator, Values: values}
	}
	for _, test := range []struct {
		selector      corev1.ScopedResourceSelectorRequirement
		limited, near bool
	}{
		{scope("Terminating"), true, false},
		{scope("NotTerminating"), false, true},
		{scope("BestEffort"), false, true},
		{scope("NotBestEffort"), true, false},
		{scope("PriorityClass"), true, false},
		{class("In", "high", "low"), true, false},
		{class("NotIn", "high"), false, true},
		{class("DoesNotExist"), false, true},
		{scope("CrossNamespacePodAffinity"), false, true},
		{scope("VolumeAttributesClass"), false, false},
	} {
		for p, want := range map[*corev1.Pod]bool{limited: test.limited, near: test.near} {
			got, err := e.MatchingScopes(p, []corev1.ScopedResourceSelectorRequirement{test.selector})
			if err != nil || (len(got) == 1) != want {
				t.Errorf("%v of %v: %v, %v", test.selector, p.Spec, got, err)
			}
			q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{test.selector}}},
				Status: corev1.ResourceQuotaStatus{Hard: amounts("pods=1")}}
			if match, err := e.Matches(q, p); err != nil || match != want {
				t.Errorf("quota for %v: %v, %v", test.selector, match, err)
			}
		}
	}
	if _, err := e.MatchingScopes(limited, []corev1.ScopedResourceSelectorRequirement{class("Like", "x")}); err == nil {
		t.Error("an operator that there is not")
	}
	uncovered, _ := e.UncoveredQuotaScopes([]corev1.ScopedResourceSelectorRequirement{class("In", "high"), scope("BestEffort")}, []corev1.ScopedResourceSelectorRequirement{class("Exists")})
	if diff := cmp.Diff([]corev1.ScopedResourceSelectorRequirement{scope("BestEffort")}, uncovered); diff != "" {
		t.Error(diff)
	}
}

func TestServiceUsage(t *testing.T) {
	e := evaluatorOf(t, "services", nil)
	service := func(kind corev1.ServiceType, allocate *bool, nodePorts ...int32) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, AllocateLoadBalancerNodePorts: allocate}}
		for _, port := range nodePorts {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{NodePort: port})
		}
		return s
	}
	wantUsage(t, "inside", e, service("ClusterIP", nil, 0, 0), "count/services=1 services.loadbalancers=0 services.nodeports=0 services=1")
	wantUsage(t, "node ports", e, service("NodePort", nil, 0, 0), "count/services=1 services.loadbalancers=0 services.nodeports=2 services=1")
	wantUsage(t, "balanced", e, service("LoadBalancer", nil, 0, 0), "count/services=1 services.loadbalancers=1 services.nodeports=2 services=1")
	wantUsage(t, "without ports", e, service("LoadBalancer", new(false), 0, 30000), "count/services=1 services.loadbalancers=1 services.nodeports=1 services=1")
	if covered, err := e.UncoveredQuotaScopes([]corev1.ScopedResourceSelectorRequirement{{ScopeName: "BestEffort"}}, nil); len(covered) != 0 || err != nil {
		t.Errorf("Services have no scopes: %v, %v", covered, err)
	}
}

func TestClaimUsage(t *testing.T) {
	e := evaluatorOf(t, "persistentvolumeclaims", nil)
	c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage=1500m")}}}
	wantUsage(t, "whole bytes", e, c, "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2")
	c.Spec.StorageClassName, c.Status.AllocatedResources = new("gold"), amounts("storage=1Gi")
	wantUsage(t, "granted more", e, c, "count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi")
	wantUsage(t, "no size", e, &corev1.PersistentVolumeClaim{}, "count/persistentvolumeclaims=1 persistentvolumeclaims=1")

	c.Spec.VolumeAttributesClassName = new("silver")
	c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "bronze"}
	for value, want := range map[string]int{"silver": 1, "bronze": 1, "gold": 0} {
		selector := corev1.ScopedResourceSelectorRequirement{ScopeName: "VolumeAttributesClass", Operator: "In", Values: []string{value}}
		if got, err := e.MatchingScopes(c, []corev1.ScopedResourceSelectorRequirement{selector}); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
}

func TestWhatIsCounted(t *testing.T) {
	names := []corev1.ResourceName{"cpu", "pods", "count/pods", "hugepages-2Mi", "requests.hugepages-2Mi", "requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/x", "example.com/gpu",
		"services", "services.nodeports", "count/services", "requests.storage", "gold.storageclass.storage.k8s.io/requests.storage", "gold.storageclass.storage.k8s.io/cpu", "count/secrets", "secrets", "count/jobs.batch"}
	for plural, want := range map[string][]corev1.ResourceName{
		"pods":                   {"cpu", "pods", "count/pods", "hugepages-2Mi", "requests.hugepages-2Mi", "requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/x"},
		"services":               {"services", "services.nodeports", "count/services"},
		"persistentvolumeclaims": {"requests.storage", "gold.storageclass.storage.k8s.io/requests.storage"},
		"secrets":                {"count/secrets", "secrets"},
	} {
		got := evaluatorOf(t, plural, nil).MatchingResources(names)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", plural, diff)
		}
	}
}

func TestWhatIsHandled(t *testing.T) {
	limited := pod()
	limited.Spec.ActiveDeadlineSeconds = new(int64(5))
	claim := &corev1.PersistentVolumeClaim{}
	for _, test := range []struct {
		plural  string
		request admissiontest.Request
		want    bool
	}{
		{"pods", admissiontest.Request{Operation: admission.Create, Resource: "pods", Object: pod()}, true},
		{"pods", admissiontest.Request{Operation: admission.Update, Resource: "pods", Object: pod(), Old: pod()}, false},
		{"pods", admissiontest.Request{Operation: admission.Update, Resource: "pods", Object: limited, Old: pod()}, true},
		{"pods", admissiontest.Request{Operation: admission.Update, Resource: "pods/resize", Object: pod(), Old: pod()}, true},
		{"pods", admissiontest.Request{Operation: admission.Update, Resource: "pods/status", Object: pod(), Old: pod()}, false},
		{"services", admissiontest.Request{Operation: admission.Update, Resource: "services", Object: &corev1.Service{}, Old: &corev1.Service{}}, true},
		{"services", admissiontest.Request{Operation: admission.Update, Resource: "services/status", Object: &corev1.Service{}, Old: &corev1.Service{}}, false},
		{"persistentvolumeclaims", admissiontest.Request{Operation: admission.Update, Resource: "persistentvolumeclaims", Object: claim, Old: claim}, true},
		{"persistentvolumeclaims", admissiontest.Request{Operation: admission.Update, Resource: "persistentvolumeclaims/status", Object: claim, Old: claim}, true},
	} {
		if got := evaluatorOf(t, test.plural, nil).Handles(test.request.Attributes()); got != test.want {
			t.Errorf("%s of %s: %v", test.request.Operation, test.request.Resource, got)
		}
	}
}

// store lists what it has of one resource.
type store struct{ cache.GenericLister }

func TestUsageStats(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	small, large := pod(container("a", "cpu=1", "")), pod(container("a", "cpu=2", ""))
	large.Name, large.Spec.PriorityClassName = "q", "high"
	for _, p := range []*corev1.Pod{small, large} {
		if err := indexer.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	e := evaluatorOf(t, "pods", func(gvr schema.GroupVersionResource) (cache.GenericLister, error) {
		return store{cache.NewGenericLister(indexer, gvr.GroupResource())}, nil
	})
	stats, err := e.UsageStats(quota.UsageStatsOptions{Namespace: "app", Resources: []corev1.ResourceName{"cpu"}})
	if cpu := stats.Used["cpu"]; err != nil || cpu.String() != "3" {
		t.Errorf("%v, %v", stats, err)
	}
	stats, err = e.UsageStats(quota.UsageStatsOptions{Namespace: "app", Scopes: []corev1.ResourceQuotaScope{"PriorityClass"}})
	if cpu := stats.Used["cpu"]; err != nil || cpu.String() != "2" {
		t.Errorf("of a class: %v, %v", stats, err)
	}
}

// The library's plugin, with these evaluators, refuses what goes beyond a quota
// and writes down what it lets in.
func TestPlugin(t *testing.T) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "q", ResourceVersion: "1"},
		Status: corev1.ResourceQuotaStatus{Hard: amounts("requests.cpu=2 secrets=0"), Used: amounts("requests.cpu=1 secrets=0")}}
	client := fake.NewClientset(q)
	factory := informers.NewSharedInformerFactory(client, 0)
	p, err := plugin.NewResourceQuota(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.SetDrainedNotification(t.Context().Done())
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(factory)
	Initializer(clocktesting.NewFakePassiveClock(noon)).Initialize(p)
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
		{"pods", pod(container("a", "cpu=2", "")), "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=1, limited: requests.cpu=2"},
		{"pods", pod(container("a", "", "")), "failed quota: q: must specify requests.cpu for: a"},
		{"pods", pod(container("a", "cpu=1", "")), ""},
		{"secrets", &corev1.Secret{ObjectMeta: meta}, "exceeded quota: q, requested: secrets=1, used: secrets=0, limited: secrets=0"},
		{"events", &corev1.Event{ObjectMeta: meta}, ""},
	} {
		err := create(test.resource, test.obj)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasSuffix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.resource, err, test.want)
		}
	}
	stored, err := client.CoreV1().ResourceQuotas("app").Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil || written(stored.Status.Used) != "requests.cpu=2 secrets=0" {
		t.Errorf("%v, %v", stored, err)
	}
}
