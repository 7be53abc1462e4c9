// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/durable"
	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// DeclaredFeatures returns, sorted, the features that the node declares to the API server
// (KEP-5328): resources of pods and of init containers can be resized, and a container's end can restart all containers.
func DeclaredFeatures() []string {
	return []string{
		"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
	}
}

// Allocation is the resources that the node has allocated to a pod: those that the pod was admitted
// with or last resized to. The API's spec has the desired resources. The two differ while a resize
// is pending (KEP-1287). The worker runs the pod with the allocated ones.
type Allocation struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers"`
}

// AllocationOf returns the resources in the pod's spec.
func AllocationOf(pod *v1.Pod) Allocation {
	a := Allocation{Pod: pod.Spec.Resources.DeepCopy(), Containers: map[string]v1.ResourceRequirements{}}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			a.Containers[list[i].Name] = *list[i].Resources.DeepCopy()
		}
	}
	return a
}

// Equal reports whether two allocations have the same quantities, in whatever format.
func (a Allocation) Equal(b Allocation) bool { return equality.Semantic.DeepEqual(a, b) }

// ApplyTo returns the pod with these resources in its spec: the pod itself if it has them already.
func (a Allocation) ApplyTo(pod *v1.Pod) *v1.Pod {
	if a.Equal(AllocationOf(pod)) {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Spec.Resources = a.Pod.DeepCopy()
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if resources, ok := a.Containers[list[i].Name]; ok {
				list[i].Resources = *resources.DeepCopy()
			}
		}
	}
	return pod
}

// Save stores a pod's allocation, in the pod's directory, for the next agent. It is durable: an agent
// without it would admit the pod with the resources in its spec, and might refuse a pod whose resize
// was deferred.
func (a Allocation) Save(l rootdir.Layout, uid types.UID) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode the pod's resources: %w", err)
	}
	path := l.AllocationFile(uid)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("create the pod's directory: %w", err)
	}
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("save the pod's resources: %w", err)
	}
	return nil
}

// LoadAllocation returns the allocation that Save stored, or false.
func LoadAllocation(l rootdir.Layout, uid types.UID) (a Allocation, ok bool) {
	data, err := os.ReadFile(l.AllocationFile(uid))
	if err != nil || json.Unmarshal(data, &a) != nil {
		return Allocation{}, false
	}
	return a, true
}
