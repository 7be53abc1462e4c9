// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

type resourceClaimOption func(*resourcev1.ResourceClaim)

// gpus is a claim of a number of devices of class gpu.
func gpus(name string, count int64, opts ...resourceClaimOption) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}}}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

// taking is the allocation of a device of a node.
func taking(node, device string, users ...*model.Pod) resourceClaimOption {
	return func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "r", Driver: "d", Pool: node, Device: device,
			}}},
			NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}},
		}
		for _, user := range users {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: user.Name, UID: user.UID})
		}
	}
}

func selecting(expression string) resourceClaimOption {
	return func(c *resourcev1.ResourceClaim) {
		c.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	}
}

// needing requires the allocated device to report that it is ready, with what it has reported.
func needing(allocated time.Time, conditions ...metav1.Condition) resourceClaimOption {
	return func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: allocated}
		result := &c.Status.Allocation.Devices.Results[0]
		result.BindingConditions, result.BindingFailureConditions = []string{"ready"}, []string{"broken"}
		c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{
			Driver: result.Driver, Pool: result.Pool, Device: result.Device, Conditions: conditions,
		}}
	}
}

// slice is a node's devices.
func slice(node string, devices ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "d", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for _, name := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name:       name,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: ptr.To(name)}},
			Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("1Gi")}},
		})
	}
	return s
}

func gpuClass(name string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func withClaim(name string) podOption {
	return func(p *v1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
	}
}

func fromTemplate(name, claim string) podOption {
	return func(p *v1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimTemplateName: ptr.To("t")})
		if claim != "" {
			p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: name, ResourceClaimName: &claim}}
		}
	}
}

func storeDevices(c *model.Cluster, objects ...any) *model.Cluster {
	for _, object := range objects {
		switch object := object.(type) {
		case *resourcev1.ResourceClaim:
			c.Devices.SetClaim(object)
		case *resourcev1.ResourceSlice:
			c.Devices.SetSlice(object)
		case *resourcev1.DeviceClass:
			c.Devices.Classes.Set(object.Name, object)
		case *resourcev1.DeviceTaintRule:
			c.Devices.SetTaintRule(object)
		}
	}
	return c
}

var noon = time.Unix(10000, 0)

func TestDevices(t *testing.T) {
	const (
		none = "!cannot allocate all claims"
		away = "!resourceclaim not available on the node"
	)
	user := pod()
	tainted := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Pool: ptr.To("b")},
		Taint:          resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule},
	}}
	leavingClaim := func(c *resourcev1.ResourceClaim) { c.DeletionTimestamp = &metav1.Time{} }
	isTrue := func(name string) metav1.Condition {
		return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "R", Message: "m"}
	}
	pools := []any{gpuClass("gpu"), slice("a", "a0"), slice("b", "b0", "b1")}
	for _, tt := range []struct {
		name    string
		objects []any
		pod     *model.Pod
		want    []string
	}{
		{"no claims", nil, pod(), []string{"", ""}},
		{"claim missing", nil, pod(withClaim("x")), []string{`!could not find ResourceClaim "default/x"`, `!could not find ResourceClaim "default/x"`}},
		{"claim not created yet", nil, pod(func(p *v1.Pod) { p.Name = "p" }, fromTemplate("x", "")),
			[]string{`!pod "default/p": ResourceClaim not created yet`, `!pod "default/p": ResourceClaim not created yet`}},
		{"claim of another pod", []any{gpus("x", 1)}, pod(func(p *v1.Pod) { p.Name = "p" }, fromTemplate("x", "x")), []string{
			"!ResourceClaim default/x was not created for Pod default/p (Pod is not owner)", "!ResourceClaim default/x was not created for Pod default/p (Pod is not owner)"}},
		{"claim being deleted", []any{gpus("x", 1, leavingClaim)}, pod(withClaim("x")), []string{`!resourceclaim "x" is being deleted`, `!resourceclaim "x" is being deleted`}},
		{"class missing", []any{gpus("x", 1)}, pod(withClaim("x")), []string{"!request r: device class gpu does not exist", "!request r: device class gpu does not exist"}},
		{"devices on both", append(pools, gpus("x", 1)), pod(withClaim("x")), []string{"", ""}},
		{"enough on one", append(pools, gpus("x", 2)), pod(withClaim("x")), []string{none, ""}},
		{"two claims", append(pools, gpus("x", 1), gpus("y", 1)), pod(withClaim("x"), withClaim("y")), []string{none, ""}},
		{"taken by another", append(pools, gpus("x", 1), gpus("y", 1, taking("a", "a0"))), pod(withClaim("x")), []string{none, ""}},
		{"selected by attribute", append(pools, gpus("x", 1, selecting(`device.attributes["d"].model == "a0"`))), pod(withClaim("x")), []string{"", none}},
		{"tainted", append(pools, tainted, gpus("x", 1)), pod(withClaim("x")), []string{"", none}},
		{"allocated", append(pools, gpus("x", 1, taking("b", "b0"))), pod(withClaim("x")), []string{away, ""}},
		{"shared", append(pools, gpus("x", 1, taking("b", "b0", user))), pod(withClaim("x")), []string{away, ""}},
		{"ready", append(pools, gpus("x", 1, taking("b", "b0"), needing(noon, isTrue("ready")))), pod(withClaim("x")), []string{away, ""}},
		{"not ready yet", append(pools, gpus("x", 1, taking("b", "b0"), needing(noon))), pod(withClaim("x")), []string{away, ""}},
		{"not ready in time", append(pools, gpus("x", 1, taking("b", "b0"), needing(noon.Add(-time.Hour)))), pod(withClaim("x")), []string{away, away}},
		{"broken", append(pools, gpus("x", 1, taking("b", "b0"), needing(noon, isTrue("broken")))), pod(withClaim("x")), []string{away, away}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := storeDevices(clusterOf(on{node: node("a")}, on{node: node("b")}), tt.objects...)
			filter := newDevices(testingclock.NewFakeClock(noon))
			if diff := cmp.Diff(tt.want, rejections(filter, cluster, tt.pod)); diff != "" {
				t.Errorf("rejections (-want +got):\n%s", diff)
			}
		})
	}
}

// reserveDevices returns what is written for a pod on a node.
func reserveDevices(t *testing.T, cluster *model.Cluster, p *model.Pod, name string) *model.Reservation {
	t.Helper()
	check, rejection := newDevices(testingclock.NewFakeClock(noon)).For(cluster, p)
	if rejection != nil {
		t.Fatal(rejection.Reasons)
	}
	if r := check.Check(cluster.Node(name)); r != nil {
		t.Fatal(r.Reasons)
	}
	reservation := &model.Reservation{}
	check.(Reserver).Reserve(cluster.Node(name), reservation)
	return reservation
}

// TestPendingAllocation: an allocation counts from its decision, and its claim is not shared before
// it is written.
func TestPendingAllocation(t *testing.T) {
	cluster := storeDevices(clusterOf(on{node: node("a")}), gpuClass("gpu"), slice("a", "a0"), gpus("x", 1), gpus("y", 1))
	first := pod(withClaim("x"))
	reservation := reserveDevices(t, cluster, first, "a")
	if n := len(reservation.Devices.Claims); n != 1 || reservation.Devices.Claims[0].Allocation.Devices.Results[0].Device != "a0" {
		t.Fatalf("reservation %+v", reservation.Devices)
	}
	if err := cluster.Reserve(reservation, first.UID, "a"); err != nil {
		t.Fatal(err)
	}
	filter := newDevices(testingclock.NewFakeClock(noon))
	for claim, want := range map[string]string{"x": "!resource claim default/x is in the process of being allocated", "y": "!cannot allocate all claims"} {
		if diff := cmp.Diff([]string{want}, rejections(filter, cluster, pod(withClaim(claim)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", claim, diff)
		}
	}
	cluster.Release(reservation, first.UID)
	if diff := cmp.Diff([]string{""}, rejections(filter, cluster, pod(withClaim("y")))); diff != "" {
		t.Errorf("after release (-want +got):\n%s", diff)
	}
}

// TestUnavailable: an allocation that nobody else uses is removed if it keeps the pod from a node.
func TestUnavailable(t *testing.T) {
	user, other := pod(withClaim("x")), pod()
	for _, tt := range []struct {
		name  string
		users []*model.Pod
		want  bool
	}{
		{"unused", nil, true},
		{"used by the pod", []*model.Pod{user}, true},
		{"used by another", []*model.Pod{other}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := storeDevices(clusterOf(on{node: node("a")}), gpuClass("gpu"), gpus("x", 1, taking("gone", "g0", tt.users...)))
			check, _ := newDevices(testingclock.NewFakeClock(noon)).For(cluster, user)
			check.Check(cluster.Node("a"))
			if got := check.(Deallocator).Unavailable(user.UID) != nil; got != tt.want {
				t.Errorf("deallocated: %v", got)
			}
		})
	}
}

// TestPreferFirstAlternative: nodes with an earlier alternative of a prioritized list are better.
func TestPreferFirstAlternative(t *testing.T) {
	list := gpus("x", 1, func(c *resourcev1.ResourceClaim) {
		var alternatives []resourcev1.DeviceSubRequest
		for _, class := range []string{"gpu", "cpu"} {
			selector := `device.attributes["d"].model == "` + class + `"`
			alternatives = append(alternatives, resourcev1.DeviceSubRequest{
				Name: class, DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}},
			})
		}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", FirstAvailable: alternatives}}
	})
	cluster := storeDevices(clusterOf(on{node: node("a")}, on{node: node("b")}), gpuClass("gpu"), gpuClass("cpu"), slice("a", "cpu"), slice("b", "gpu"), list)
	scores := make([]int64, 2)
	newDevices(testingclock.NewFakeClock(noon)).Score(cluster, pod(withClaim("x")), cluster.Nodes(), scores)
	if diff := cmp.Diff([]int64{87, 100}, scores); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
}
