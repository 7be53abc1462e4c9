// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	clocktesting "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// amounts parses a list such as "cpu=1 memory=1Gi".
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for item := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(item, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return list
}

func request(operation admission.Operation, resource string, object, old runtime.Object) admission.Attributes {
	resource, subresource, _ := strings.Cut(resource, "/")
	return admission.NewAttributesRecord(object, old, schema.GroupVersionKind{}, "app", "x",
		schema.ParseGroupResource(resource).WithVersion("v1"), subresource, operation, nil, false, nil)
}

// written is the inverse of amounts, sorted by name.
func written(list corev1.ResourceList) string {
	var out []string
	for name, quantity := range list {
		out = append(out, string(name)+"="+quantity.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func evaluatorOf(t *testing.T, plural string, list Lister) quota.Evaluator {
	t.Helper()
	e := generic.NewRegistry(Evaluators(list, clocktesting.NewFakePassiveClock(noon), nil)).Get(corev1.Resource(plural))
	if e == nil {
		t.Fatalf("no evaluator for %s", plural)
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
		t.Error("a Service was accepted as a pod")
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
		t.Error("no error for an unknown operator")
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

func TestMatchingResources(t *testing.T) {
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

func TestHandles(t *testing.T) {
	limited := pod()
	limited.Spec.ActiveDeadlineSeconds = new(int64(5))
	claim := &corev1.PersistentVolumeClaim{}
	for _, test := range []struct {
		plural  string
		request admission.Attributes
		want    bool
	}{
		{"pods", request(admission.Create, "pods", pod(), nil), true},
		{"pods", request(admission.Update, "pods", pod(), pod()), false},
		{"pods", request(admission.Update, "pods", limited, pod()), true},
		{"pods", request(admission.Update, "pods/resize", pod(), pod()), true},
		{"pods", request(admission.Update, "pods/status", pod(), pod()), false},
		{"services", request(admission.Update, "services", &corev1.Service{}, &corev1.Service{}), true},
		{"services", request(admission.Update, "services/status", &corev1.Service{}, &corev1.Service{}), false},
		{"persistentvolumeclaims", request(admission.Update, "persistentvolumeclaims", claim, claim), true},
		{"persistentvolumeclaims", request(admission.Update, "persistentvolumeclaims/status", claim, claim), true},
	} {
		if got := evaluatorOf(t, test.plural, nil).Handles(test.request); got != test.want {
			t.Errorf("%s of %s: %v", test.request.GetOperation(), test.request.GetResource(), got)
		}
	}
}

func TestUsageStats(t *testing.T) {
	small, large := pod(container("a", "cpu=1", "")), pod(container("a", "cpu=2", ""))
	large.Name, large.Spec.PriorityClassName = "q", "high"
	e := evaluatorOf(t, "pods", func(resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
		if resource != corev1.Resource("pods") || namespace != "app" {
			t.Errorf("listed %s in %s", resource, namespace)
		}
		return []runtime.Object{small, large}, nil
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

func TestCounted(t *testing.T) {
	for name, want := range map[corev1.ResourceName]string{
		"count/secrets":                "secrets",
		"count/deployments.apps":       "deployments.apps",
		"count/foos.a.example.com":     "foos.a.example.com",
		"count/events":                 "",
		"count/events.events.k8s.io":   "",
		"secrets":                      "",
		"requests.example.com/devices": "",
	} {
		resource, found := Counted(name)
		if found != (want != "") || found && resource.String() != want {
			t.Errorf("%s: %s, %v", name, resource, found)
		}
	}
}

func TestChanged(t *testing.T) {
	edited := func(obj runtime.Object, edit func(runtime.Object)) runtime.Object {
		obj = obj.DeepCopyObject()
		edit(obj)
		return obj
	}
	onPod := func(edit func(*corev1.Pod)) func(runtime.Object) {
		return func(obj runtime.Object) { edit(obj.(*corev1.Pod)) }
	}
	onClaim := func(edit func(*corev1.PersistentVolumeClaim)) func(runtime.Object) {
		return func(obj runtime.Object) { edit(obj.(*corev1.PersistentVolumeClaim)) }
	}
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage=1Gi")}}}
	service := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 1}, {Port: 2}}}}
	for _, test := range []struct {
		name, plural string
		old          runtime.Object
		edit         func(runtime.Object)
		want         bool
	}{
		{"a pod starts to run", "pods", pod(container("a", "cpu=1", "")), onPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), false},
		{"a pod ends", "pods", pod(container("a", "cpu=1", "")), onPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true},
		{"a pod is resized", "pods", pod(container("a", "cpu=1", "")), onPod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts("cpu=2") }), true},
		{"a pod gets a deadline", "pods", pod(container("a", "", "")), onPod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }), true},
		{"a claim gets a label", "persistentvolumeclaims", claim, onClaim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }), false},
		{"a claim grows", "persistentvolumeclaims", claim, onClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = amounts("storage=2Gi") }), true},
		{"a claim changes its class", "persistentvolumeclaims", claim, onClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }), true},
		{"a Service has fewer ports", "services", service, func(obj runtime.Object) { obj.(*corev1.Service).Spec.Ports = service.Spec.Ports[:1] }, true},
		{"a Service has other ports", "services", service, func(obj runtime.Object) { obj.(*corev1.Service).Spec.Ports[0].Port = 3 }, false},
		{"a Secret changes", "secrets", &corev1.Secret{}, func(obj runtime.Object) { obj.(*corev1.Secret).Data = map[string][]byte{"a": nil} }, false},
		{"another kind", "pods", claim, func(runtime.Object) {}, false},
	} {
		if got := Changed(evaluatorOf(t, test.plural, nil), edited(test.old, test.edit), test.old); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
