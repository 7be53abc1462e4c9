// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
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
