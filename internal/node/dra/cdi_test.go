// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// TestUses: a container uses the claims that it names, or requests of them, and the requests for its extended
// resources.
func TestUses(t *testing.T) {
	p := podWith("p", "a", "b")
	p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: "none", ResourceClaimTemplateName: new("t")})
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "none"}}
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "x", RequestMappings: []v1.ContainerExtendedResourceRequest{
		{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "one"},
		{ContainerName: "c", ResourceName: "example.com/other", RequestName: "two"},
		{ContainerName: "d", ResourceName: "example.com/gpu", RequestName: "three"},
	}}
	c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{
		Claims:   []v1.ResourceClaim{{Name: "b", Request: "r"}, {Name: "b", Request: "s"}, {Name: "none"}},
		Requests: v1.ResourceList{"example.com/gpu": resource.MustParse("1")},
	}}
	uses, err := usesOf(p, &c)
	check(t, "uses", err, "")
	want := []use{{"b", "r"}, {"b", "s"}, {"x", "one"}}
	if len(uses) != len(want) || uses[0] != want[0] || uses[1] != want[1] || uses[2] != want[2] {
		t.Errorf("got %v", uses)
	}
}

func TestDevicesOfRequests(t *testing.T) {
	c := claim{Drivers: map[string][]device{
		"b": {{CDI: []string{"b=r"}, Requests: []string{"r"}}, {CDI: []string{"b=s1", "b=s2"}, Requests: []string{"s", "u"}}},
		"a": {{CDI: []string{"a=all"}}, {Requests: []string{"r"}}},
	}}
	for request, want := range map[string][]string{
		"": {"a=all", "b=r", "b=s1", "b=s2"}, "r": {"a=all", "b=r"}, "u": {"a=all", "b=s1", "b=s2"}, "other": {"a=all"},
	} {
		expect(t, "request "+request, c.cdi(request), want)
	}
}

// TestDevicesWithoutRuntime: a container does not start without its devices.
func TestDevicesWithoutRuntime(t *testing.T) {
	d := newDriver(t, "d", withV1)
	w := newWorld(t, d)
	w.allocated("c", []string{"d"}, "p")
	p := podWith("p", "c")
	_, err := w.Devices(p, &p.Spec.Containers[0])
	check(t, "before", err, "internal error: unable to get claim info for ResourceClaim c in namespace ns")
	check(t, "prepare", w.Prepare(t.Context(), p), "")
	w.options.NoCDI = errors.New("too old")
	_, err = w.Devices(p, &p.Spec.Containers[0])
	check(t, "devices", err, "too old")
	devices, err := w.Devices(p, &v1.Container{Name: "without"})
	if err != nil || len(devices) > 0 {
		t.Errorf("got %v, %v", devices, err)
	}
}

// TestResources: the PodResources API shows each claim of a container once, with all its devices.
func TestResources(t *testing.T) {
	d, e := newDriver(t, "d", withV1), newDriver(t, "e", withV1)
	w := newWorld(t, d, e)
	w.allocated("c", []string{"e", "d"}, "p")
	p := podWith("p", "c", "unprepared")
	c := &p.Spec.Containers[0]
	c.Resources.Claims = append(c.Resources.Claims, v1.ResourceClaim{Name: "c", Request: "r"})
	if got := w.Resources(p, c); got != nil {
		t.Errorf("before: %v", got)
	}
	check(t, "prepare", w.Prepare(t.Context(), podWith("p", "c")), "")
	device := func(driver string) *podresources.ClaimResource {
		return &podresources.ClaimResource{
			DriverName: driver, PoolName: "pool", DeviceName: "c", CdiDevices: []*podresources.CDIDevice{{Name: driver + "/gpu=c"}},
		}
	}
	want := []*podresources.DynamicResource{{
		ClaimName: "c", ClaimNamespace: "ns", ClaimResources: []*podresources.ClaimResource{device("d"), device("e")},
	}}
	if diff := cmp.Diff(want, w.Resources(p, c), protocmp.Transform()); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if got := w.Resources(p, &v1.Container{}); got != nil {
		t.Errorf("of another container: %v", got)
	}
}
