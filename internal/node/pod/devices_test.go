// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// TestVolumesInConfiguration: a run gets the devices and the groups of the pod's volumes.
func TestVolumesInConfiguration(t *testing.T) {
	s := newStageTest(t, testPod())
	s.node.devices = []*runtimeapi.Device{{ContainerPath: "/dev/disk", HostPath: "/dev/loop7", Permissions: "mrw"}}
	s.node.groups = []int64{1234}
	run := criconfig.Run{Pod: s.pod, Container: &s.pod.Spec.Containers[0]}
	config, err := s.configure(t.Context(), run, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.node.devices, config.Devices, cmpopts.IgnoreUnexported(runtimeapi.Device{})); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{1234}, config.Linux.SecurityContext.SupplementalGroups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if s.pod.Spec.SecurityContext != nil {
		t.Error("the pod was changed")
	}

	s.cri.fail["Devices"] = errors.New("no device")
	if _, err := s.configure(t.Context(), run, nil); err == nil || err.Error() != "no device" {
		t.Errorf("got %v", err)
	}
}

// TestDevicesOfClaims: a container gets the CDI devices of its claims, and its status shows their health.
func TestDevicesOfClaims(t *testing.T) {
	pod := testPod()
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
	s := newStageTest(t, pod)
	s.claims.devices = []*runtimeapi.CDIDevice{{Name: "example.com/gpu=0"}}
	run := criconfig.Run{Pod: s.Worker.Pod(), Container: &pod.Spec.Containers[0]}
	config, err := s.configure(t.Context(), run, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.claims.devices, config.CDIDevices, cmpopts.IgnoreUnexported(runtimeapi.CDIDevice{})); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	s.cri.fail["CDIDevices"] = errors.New("no device")
	if _, err := s.configure(t.Context(), run, nil); err == nil || err.Error() != "no device" {
		t.Errorf("got %v", err)
	}

	in := scene(v1.Container{Name: "app", Image: "i"}).with(runningRun("app"))
	in.Devices = map[string][]v1.ResourceStatus{"app": {{Name: "claim:gpu", Resources: []v1.ResourceHealth{{ResourceID: "id", Health: v1.ResourceHealthStatusUnhealthy}}}}}
	if diff := cmp.Diff(in.Devices["app"], Decide(in).Status.ContainerStatuses[0].AllocatedResourcesStatus); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}

// TestAssignedResources: a container gets what its pod was assigned. If it has CPUs of its own, its CPU limit is not
// enforced. Its status shows the health of its devices, beside those of claims.
func TestAssignedResources(t *testing.T) {
	pod := testPod()
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: limits, Limits: limits}
	s := newStageTest(t, pod)
	s.resources.assigned = criconfig.Assigned{
		CPUs: "1-2", MemoryNodes: "0", Exclusive: true,
		Env: []*runtimeapi.KeyValue{{Key: "GPU", Value: []byte("a")}}, Annotations: map[string]string{"gpu": "a"},
		Mounts:  []*runtimeapi.Mount{{ContainerPath: "/lib/gpu", HostPath: "/gpu"}},
		Devices: []*runtimeapi.Device{{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu0"}}, CDIDevices: []*runtimeapi.CDIDevice{{Name: "example.com/gpu=a"}},
	}
	run := criconfig.Run{Pod: s.Worker.Pod(), Container: &pod.Spec.Containers[0]}
	config, err := s.configure(t.Context(), run, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := config.Linux.Resources; r.CpusetCpus != "1-2" || r.CpusetMems != "0" || r.CpuQuota != criconfig.NoQuota {
		t.Errorf("resources %v", r)
	}
	if config.Envs[0].Key != "GPU" || config.Annotations["gpu"] != "a" || config.Mounts[0].HostPath != "/gpu" ||
		config.Devices[0].HostPath != "/dev/gpu0" || config.CDIDevices[0].Name != "example.com/gpu=a" {
		t.Errorf("configuration %v", config)
	}
	s.cri.fail["Assigned"] = errors.New("no device")
	if _, err := s.configure(t.Context(), run, nil); err == nil || err.Error() != "no device" {
		t.Errorf("got %v", err)
	}

	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
	s.resources.health = map[string][]v1.ResourceStatus{"c": {{Name: "example.com/device"}}}
	s.claims.health = map[string][]v1.ResourceStatus{"c": {{Name: "claim:gpu"}}}
	if got := s.devicesOf(pod)["c"]; len(got) != 2 {
		t.Errorf("devices %v", got)
	}
}

// TestPhaseWaitsForRelease: the scheduler must not give the CPUs and devices of a pod to another one before they are free.
func TestPhaseWaitsForRelease(t *testing.T) {
	over := scene(v1.Container{Name: "app", Image: "i"}).with(runtime.Container{Name: "app", State: runtime.Exited, StartedAt: caseTime})
	over.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
	over.Old.Phase = v1.PodRunning
	for assigned, want := range map[bool]bool{true: false, false: true} {
		over.Assigned = assigned
		if got := IsOver(Decide(over).Status.Phase); got != want {
			t.Errorf("assigned %t: over %t", assigned, got)
		}
	}
}
