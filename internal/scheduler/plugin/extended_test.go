// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

func withResource(class *resourcev1.DeviceClass, name string) *resourcev1.DeviceClass {
	class.Spec.ExtendedResourceName = &name
	return class
}

// TestExtendedResources: devices satisfy a request on nodes that have none of the resource.
func TestExtendedResources(t *testing.T) {
	const resource = "example.com/gpu"
	plugin := node("plugin", allocatable("cpu", "4", "pods", "10", resource, "1"))
	devicesNode, bare := node("devices"), node("bare")
	objects := []any{withResource(gpuClass("gpu"), resource), slice("devices", "d0", "d1")}
	left := gpus("left", 1, func(c *resourcev1.ResourceClaim) {
		c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: "its-uid", Controller: ptr.To(true)}}
	})
	its := func(p *v1.Pod) { p.UID = "its-uid" }
	for _, tt := range []struct {
		name    string
		objects []any
		pod     *model.Pod
		fit     []string
		devices []string
	}{
		{"one", objects, pod(requests(resource, "1")), []string{"", "", ""}, []string{"", "", "!cannot allocate all claims"}},
		{"by class", objects, pod(requests("deviceclass.resource.kubernetes.io/gpu", "2")), []string{"", "", ""},
			[]string{"!cannot allocate all claims", "", "!cannot allocate all claims"}},
		{"too many", objects, pod(requests(resource, "3")), []string{"!Insufficient example.com/gpu", "", ""},
			[]string{"", "!cannot allocate all claims", "!cannot allocate all claims"}},
		{"no class", objects[1:], pod(requests(resource, "1")), []string{"", "!Insufficient example.com/gpu", "!Insufficient example.com/gpu"}, []string{"", "", ""}},
		{"claim of an earlier attempt", append(objects, left), pod(its, requests(resource, "1")), []string{"", "", ""}, []string{
			"!cannot schedule extended resource claim", "!cannot schedule extended resource claim", "!cannot schedule extended resource claim"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := storeDevices(clusterOf(on{node: plugin}, on{node: devicesNode}, on{node: bare}), tt.objects...)
			if diff := cmp.Diff(tt.fit, rejections(resourcesFit{}, cluster, tt.pod)); diff != "" {
				t.Errorf("NodeResourcesFit (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.devices, rejections(newDevices(testingclock.NewFakeClock(noon)), cluster, tt.pod)); diff != "" {
				t.Errorf("DynamicResources (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExtendedRequests: containers that run together add up; init containers use the devices of those
// after them.
func TestExtendedRequests(t *testing.T) {
	const resource = "example.com/gpu"
	container := func(name, amount string, sidecar bool) v1.Container {
		c := v1.Container{Name: name}
		if amount != "" {
			c.Resources.Requests = list("cpu", "1", resource, amount)
		}
		if sidecar {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		return c
	}
	for _, tt := range []struct {
		name       string
		inits      []v1.Container
		containers []v1.Container
		requests   []string
		mappings   []string
	}{
		{"two containers", nil, []v1.Container{container("a", "1", false), container("b", "", false), container("c", "2", false)},
			[]string{"container-0-request-1 1", "container-2-request-1 2"}, []string{"a container-0-request-1", "c container-2-request-1"}},
		{"init container uses what comes after it", []v1.Container{container("i", "1", false)}, []v1.Container{container("a", "2", false)},
			[]string{"container-1-request-1 2"}, []string{"a container-1-request-1", "i container-1-request-1"}},
		{"init containers share what they need beyond", []v1.Container{container("i", "3", false), container("j", "4", false)}, []v1.Container{container("a", "1", false)},
			[]string{"container-1-request-1 3", "container-2-request-1 1"},
			[]string{"a container-2-request-1", "i container-2-request-1", "i container-1-request-1", "j container-2-request-1", "j container-1-request-1"}},
		{"a sidecar keeps its own", []v1.Container{container("s", "1", true)}, []v1.Container{container("a", "1", false)},
			[]string{"container-0-request-1 1", "container-1-request-1 1"}, []string{"s container-0-request-1", "a container-1-request-1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := storeDevices(clusterOf(on{node: node("n")}), withResource(gpuClass("gpu"), resource))
			p := pod(func(p *v1.Pod) { p.Spec.InitContainers, p.Spec.Containers = tt.inits, tt.containers })
			claim, mappings := extendedOf(cluster.Devices, p).claim(cluster.Node("n"))
			var gotRequests, gotMappings []string
			for _, r := range claim.Spec.Devices.Requests {
				gotRequests = append(gotRequests, fmt.Sprintf("%s %d", r.Name, r.Exactly.Count))
			}
			for _, m := range mappings {
				gotMappings = append(gotMappings, m.ContainerName+" "+m.RequestName)
			}
			if diff := cmp.Diff(tt.requests, gotRequests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.mappings, gotMappings); diff != "" {
				t.Errorf("mappings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClassFor: of classes with the same resource the newest counts.
func TestClassFor(t *testing.T) {
	older, newer := withResource(gpuClass("older"), "example.com/gpu"), withResource(gpuClass("newer"), "example.com/gpu")
	newer.CreationTimestamp = metav1.NewTime(noon)
	devices := storeDevices(model.NewCluster(), older, newer).Devices
	for resource, want := range map[v1.ResourceName]*resourcev1.DeviceClass{
		"example.com/gpu": newer, "deviceclass.resource.kubernetes.io/older": older, "example.com/other": nil,
	} {
		if got := devices.ClassFor(resource); got != want {
			t.Errorf("%s: class %v", resource, got)
		}
	}
}
