// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	clocktesting "k8s.io/utils/clock/testing"
)

// objects holds the objects that a Reader returns.
type objects struct {
	list []runtime.Object
	// lookups counts the lists of classes; broken is the error that they return.
	lookups int
	broken  error
}

func (o *objects) DeviceClasses() ([]resourcev1.DeviceClass, error) {
	o.lookups++
	return all[resourcev1.DeviceClass](o.list), o.broken
}

func (o *objects) ResourceClaims(string) ([]resourcev1.ResourceClaim, error) {
	return all[resourcev1.ResourceClaim](o.list), nil
}

func (o *objects) Pod(_, name string) (*corev1.Pod, error) {
	for _, p := range all[corev1.Pod](o.list) {
		if p.Name == name {
			return &p, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func all[T any](list []runtime.Object) []T {
	var out []T
	for _, item := range list {
		if is, ok := any(item).(*T); ok {
			out = append(out, *is)
		}
	}
	return out
}

func ofDevices(t *testing.T, there *objects) quota.Evaluator {
	t.Helper()
	e := generic.NewRegistry(Evaluators(nil, clocktesting.NewFakePassiveClock(noon), there)).Get(resourcev1.Resource("resourceclaims"))
	if e == nil {
		t.Fatal("no evaluator for ResourceClaims")
	}
	return e
}

func deviceClass(name, extended string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if extended != "" {
		class.Spec.ExtendedResourceName = &extended
	}
	return class
}

func exactly(class string, mode resourcev1.DeviceAllocationMode, count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: count}}
}

func claimFor(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "c", CreationTimestamp: metav1.NewTime(noon)},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}}
}

func TestDeviceUsage(t *testing.T) {
	e := ofDevices(t, &objects{list: []runtime.Object{deviceClass("gpu", "example.com/gpu"), deviceClass("nic", "")}})
	wantUsage(t, "of nothing", e, claimFor(), "count/resourceclaims.resource.k8s.io=1")
	wantUsage(t, "of a class with an extended resource", e, claimFor(exactly("gpu", "ExactCount", 2), exactly("gpu", "ExactCount", 1)),
		"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=3")
	wantUsage(t, "all of a class", e, claimFor(exactly("nic", "All", 0)),
		"count/resourceclaims.resource.k8s.io=1 nic.deviceclass.resource.k8s.io/devices=32 requests.deviceclass.resource.kubernetes.io/nic=32")
	alternatives := resourcev1.DeviceRequest{FirstAvailable: []resourcev1.DeviceSubRequest{
		{DeviceClassName: "nic", AllocationMode: "ExactCount", Count: 4}, {DeviceClassName: "nic", AllocationMode: "ExactCount", Count: 1},
		{DeviceClassName: "other", AllocationMode: "ExactCount", Count: 2}}}
	wantUsage(t, "the most of each class", e, claimFor(exactly("nic", "ExactCount", 1), alternatives),
		"count/resourceclaims.resource.k8s.io=1 nic.deviceclass.resource.k8s.io/devices=5 other.deviceclass.resource.k8s.io/devices=2"+
			" requests.deviceclass.resource.kubernetes.io/nic=5 requests.deviceclass.resource.kubernetes.io/other=2")
}

func TestDeviceNames(t *testing.T) {
	there := &objects{list: []runtime.Object{deviceClass("gpu", "example.com/gpu")}}
	e := ofDevices(t, there)
	names := []corev1.ResourceName{
		"cpu", "requests.cpu", "count/resourceclaims.resource.k8s.io", "unknown.deviceclass.resource.k8s.io/devices",
		"requests.deviceclass.resource.kubernetes.io/gpu", "requests.deviceclass.resource.kubernetes.io/nic", "requests.example.com/gpu", "requests.example.com/nic",
	}
	want := []corev1.ResourceName{names[2], names[3], names[4], names[6]}
	if diff := cmp.Diff(want, e.MatchingResources(names)); diff != "" {
		t.Error(diff)
	}

	there.lookups = 0
	e.MatchingResources(names[:4])
	if there.lookups > 0 {
		t.Errorf("%d unnecessary lookups of classes", there.lookups)
	}

	there.broken = errors.New("broken")
	if got := e.MatchingResources(names[7:]); len(got) != 1 {
		t.Errorf("without classes: %v", got)
	}
	if _, err := e.Usage(claimFor(exactly("gpu", "ExactCount", 1))); err == nil {
		t.Error("counted without classes")
	}
}

func TestDeviceRequests(t *testing.T) {
	e := ofDevices(t, &objects{})
	for _, test := range []struct {
		operation admission.Operation
		resource  string
		want      bool
	}{
		{admission.Create, "resourceclaims.resource.k8s.io", true},
		{admission.Update, "resourceclaims.resource.k8s.io", true},
		{admission.Delete, "resourceclaims.resource.k8s.io", false},
		{admission.Update, "resourceclaims.resource.k8s.io/status", false},
	} {
		a := request(test.operation, test.resource, nil, nil)
		if got := e.Handles(a); got != test.want {
			t.Errorf("%s of %s: %v", test.operation, test.resource, got)
		}
	}
	if scopes, err := e.MatchingScopes(claimFor(), []corev1.ScopedResourceSelectorRequirement{{ScopeName: corev1.ResourceQuotaScopeBestEffort}}); len(scopes) > 0 || err != nil {
		t.Errorf("claims have no scope: %v, %v", scopes, err)
	}
}

// TestExtendedResources: devices that the scheduler claims for the extended resources of a pod are
// counted once, with the pod.
func TestExtendedResources(t *testing.T) {
	const whole = "count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=2 requests.deviceclass.resource.kubernetes.io/gpu=2 requests.example.com/gpu=2"
	const once = "count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=2 requests.deviceclass.resource.kubernetes.io/gpu=2"
	owner := pod(container("a", "example.com/gpu=2", "example.com/gpu=2"))
	owner.UID = "u"
	made := claimFor(exactly("gpu", "ExactCount", 2))
	made.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID, Controller: new(true)}}
	named := func(claim string) *corev1.Pod {
		p := owner.DeepCopy()
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim}
		return p
	}
	another := func(name string, created time.Time) *resourcev1.ResourceClaim {
		c := made.DeepCopy()
		c.Name, c.CreationTimestamp = name, metav1.NewTime(created)
		return c
	}
	stranger := owner.DeepCopy()
	stranger.UID = "v"
	plain := made.DeepCopy()
	plain.Annotations = nil
	for name, test := range map[string]struct {
		claim  *resourcev1.ResourceClaim
		others []runtime.Object
		want   string
	}{
		"the pod is deleted":                         {made, nil, whole},
		"another pod":                                {made, []runtime.Object{stranger}, whole},
		"not for extended resources":                 {plain, []runtime.Object{owner}, whole},
		"the pod's only claim":                       {made, []runtime.Object{owner}, once},
		"named in the pod's status":                  {made, []runtime.Object{named("c")}, once},
		"another claim is named in the pod's status": {made, []runtime.Object{named("d")}, whole},
		"an older claim exists":                      {made, []runtime.Object{owner, another("d", noon.Add(-time.Second))}, whole},
		"a younger claim exists":                     {made, []runtime.Object{owner, another("a", noon.Add(time.Second))}, once},
		"a claim of the same age exists":             {made, []runtime.Object{owner, another("b", noon)}, whole},
	} {
		e := ofDevices(t, &objects{list: append(test.others, deviceClass("gpu", "example.com/gpu"))})
		wantUsage(t, name, e, test.claim, test.want)
	}
}
