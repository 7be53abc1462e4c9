// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func testDevices(node string, conditions ...string) *resourcev1.ResourceSlice {
	device := resourcev1.Device{Name: "d0", BindingConditions: conditions}
	if len(conditions) > 0 {
		device.BindingFailureConditions = []string{"broken"}
	}
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{device},
	}}
}

func testResourceClaim(name, version string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: version}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	return c
}

func testDeviceClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
}

func usingDevices(claim string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "r", ResourceClaimName: &claim}} }
}

// TestWaitsForResourceClaim: a pod is not tried, and nothing is reported, before its claim exists.
func TestWaitsForResourceClaim(t *testing.T) {
	b := newBench(testNode("n", "4"))
	b.setDeviceClass(testDeviceClass())
	b.setSlice(testDevices("n"))
	named := testPod("named", "1", usingDevices("c"))
	generated := testPod("generated", "1", func(p *v1.Pod) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "r", ResourceClaimTemplateName: ptr.To("t")}}
	})
	b.set(named, generated)
	b.want(t)
	b.setResourceClaim(testResourceClaim("c", "1"))
	b.want(t, "named -> n")
	ready := generated.DeepCopy()
	ready.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "r"}} // none was needed
	b.set(ready)
	b.want(t, "generated -> n")
}

// TestFailingExpression: an error in a claim is reported as an error, and tried again.
func TestFailingExpression(t *testing.T) {
	b := newBench(testNode("n", "4"))
	b.setDeviceClass(testDeviceClass())
	b.setSlice(testDevices("n"))
	claim := testResourceClaim("c", "1")
	claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{
		CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["d"].none == "x"`},
	}}
	b.setResourceClaim(claim)
	b.set(testPod("p", "1", usingDevices("c")))
	const want = `running "DynamicResources" filter plugin: claim default/c: selector #0 on device d/n/d0: CEL runtime error: no such key: none`
	for range 2 {
		d, _ := b.next()
		if d.reason != v1.PodReasonSchedulerError || !strings.HasPrefix(d.message, want) {
			t.Fatalf("decision %+v", d)
		}
		b.want(t)
		b.clock.Step(5 * time.Second)
	}
}

func TestDevicesBecomeFree(t *testing.T) {
	b := newBench(testNode("n", "4"))
	b.setDeviceClass(testDeviceClass())
	b.setSlice(testDevices("n"))
	b.setResourceClaim(testResourceClaim("c1", "1"))
	b.setResourceClaim(testResourceClaim("c2", "1"))
	b.set(testPod("p1", "1", usingDevices("c1")))
	d, _ := b.next()
	if d.node != "n" || len(d.reservation.Devices.Claims) != 1 {
		t.Fatalf("decision %+v", d)
	}
	b.set(testPod("p2", "1", usingDevices("c2")))
	b.want(t, "p2: Unschedulable: 0/1 nodes are available: 1 cannot allocate all claims. "+
		"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
	b.reserved("p1", nil, errors.New("no"))
	b.removePod("p1")
	b.clock.Step(time.Second)
	d, _ = b.next()
	for d.pod.Name == "p1" {
		d, _ = b.next()
	}
	if d.pod.Name != "p2" || d.node != "n" {
		t.Errorf("decision %+v", d)
	}
}

// TestSharedResourceClaim: the second pod waits until the claim is allocated, and then uses it.
func TestSharedResourceClaim(t *testing.T) {
	b := newBench(testNode("n", "4"))
	b.setDeviceClass(testDeviceClass())
	b.setSlice(testDevices("n"))
	claim := testResourceClaim("c", "1")
	b.setResourceClaim(claim)
	b.set(testPod("p1", "1", usingDevices("c")))
	d, _ := b.next()
	b.set(testPod("p2", "1", usingDevices("c")))
	b.want(t, "p2: Unschedulable: 0/1 nodes are available: resource claim default/c is in the process of being allocated. "+
		"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
	allocated := testResourceClaim("c", "2")
	allocated.Status.Allocation = d.reservation.Devices.Claims[0].Allocation
	b.reserved("p1", written{allocated}, nil)
	b.clock.Step(time.Second)
	b.want(t, "p1 -> n", "p2 -> n")
}

func TestReservesDevicesThroughTheAPI(t *testing.T) {
	ctx := context.Background()
	a := newAPI(testNode("n", "4"), testDeviceClass(), testDevices("n", "attached"), testResourceClaim("c", ""), testPod("p", "1", usingDevices("c")))
	conflict := true
	a.PrependReactor("update", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() == "status" && conflict {
			conflict = false
			return true, nil, apierrors.NewConflict(resourcev1.Resource("resourceclaims"), "c", errors.New("it has changed"))
		}
		return false, nil, nil
	})
	start(t, Options{Client: a})
	claims := a.ResourceV1().ResourceClaims("default")
	var claim *resourcev1.ResourceClaim
	eventually(t, "the claim is reserved", func() bool {
		claim, _ = claims.Get(ctx, "c", metav1.GetOptions{})
		return len(claim.Status.ReservedFor) > 0
	})
	if got := claim.Status.ReservedFor[0]; got.Resource != "pods" || got.Name != "p" || got.UID != "p" || got.APIGroup != "" {
		t.Errorf("reserved for %+v", got)
	}
	allocation := claim.Status.Allocation
	if allocation == nil || allocation.AllocationTimestamp == nil || allocation.Devices.Results[0].Device != "d0" || claim.Finalizers[0] != "resource.kubernetes.io/delete-protection" {
		t.Fatalf("claim %+v", claim)
	}
	eventually(t, "the wait is recorded", func() bool {
		list, err := a.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && list.Items[0].Reason == "BindingConditionsPending" &&
			list.Items[0].Note == "waiting for binding conditions for device on node n"
	})
	if node := a.pod(t, "p").Spec.NodeName; node != "" {
		t.Fatalf("bound to %s before its device is ready", node)
	}
	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d", Pool: "n", Device: "d0", Conditions: []metav1.Condition{{Type: "attached", Status: metav1.ConditionTrue}}}}
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is bound", func() bool { return a.pod(t, "p").Spec.NodeName == "n" })
}

// TestDeviceFails: the claim is no longer reserved for the pod, and then deallocated.
func TestDeviceFails(t *testing.T) {
	ctx := context.Background()
	a := newAPI(testNode("n", "4"), testDeviceClass(), testDevices("n", "attached"), testResourceClaim("c", ""), testPod("p", "1", usingDevices("c")))
	start(t, Options{Client: a})
	claims := a.ResourceV1().ResourceClaims("default")
	var claim *resourcev1.ResourceClaim
	eventually(t, "the claim is reserved", func() bool {
		claim, _ = claims.Get(ctx, "c", metav1.GetOptions{})
		return len(claim.Status.ReservedFor) > 0
	})
	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d", Pool: "n", Device: "d0", Conditions: []metav1.Condition{
		{Type: "broken", Status: metav1.ConditionTrue, Reason: "Smoke", Message: "on fire"},
	}}}
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the failure is reported", func() bool { return len(a.pod(t, "p").Status.Conditions) > 0 })
	want := `running PreBind plugin "DynamicResources": device binding failed: claim=c, reason=Smoke, message="on fire"`
	if c := a.pod(t, "p").Status.Conditions[0]; c.Reason != "SchedulerError" || c.Message != want {
		t.Errorf("condition %+v", c)
	}
	// The next attempt removes the allocation; the one after it allocates the device once more.
	eventually(t, "the claim is allocated once more", func() bool {
		now, err := claims.Get(ctx, "c", metav1.GetOptions{})
		return err == nil && now.Status.Allocation != nil && len(now.Status.Devices) == 0
	})
}

// TestExtendedResourceThroughTheAPI: the scheduler makes a claim for a request that devices satisfy.
func TestExtendedResourceThroughTheAPI(t *testing.T) {
	ctx := context.Background()
	class := testDeviceClass()
	class.Spec.ExtendedResourceName = ptr.To("example.com/gpu")
	wants := func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
	}
	a := newAPI(testNode("n", "4"), class, testDevices("n"), testPod("p", "1", wants), testPod("q", "1", wants))
	a.refuse["p"], a.refuse["q"] = 1, 1
	a.PrependReactor("create", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		claim := action.(clienttesting.CreateAction).GetObject().(*resourcev1.ResourceClaim)
		claim.Name, claim.UID = claim.GenerateName+string(claim.OwnerReferences[0].UID), "made"
		return false, nil, nil
	})
	start(t, Options{Client: a})
	bound := func() (names []string) {
		for _, name := range []string{"p", "q"} {
			if a.pod(t, name).Spec.NodeName == "n" {
				names = append(names, name)
			}
		}
		return names
	}
	// The first binding is refused: its claim is deleted, and one pod gets the device in the end.
	eventually(t, "one of the pods is bound", func() bool { return len(bound()) > 0 })
	user := bound()[0]
	status := a.pod(t, user).Status.ExtendedResourceClaimStatus
	if status == nil || status.ResourceClaimName != user+"-extended-resources-"+user || status.RequestMappings[0].RequestName != "container-0-request-1" {
		t.Errorf("status %+v", status)
	}
	claims, err := a.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(claims.Items) != 1 {
		t.Fatalf("claims %+v, %v", claims, err)
	}
	claim := claims.Items[0]
	if claim.Annotations["resource.kubernetes.io/extended-resource-claim"] != "true" || claim.Status.Allocation == nil || claim.Status.ReservedFor[0].Name != user {
		t.Errorf("claim %+v", claim)
	}
}
