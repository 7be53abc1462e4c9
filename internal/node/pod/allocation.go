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
)

// DeclaredFeatures are those by which the API server knows that a node's workers do what
// older ones did not, in order (KEP-5328): here, that a pod's resources as a whole can be
// resized.
func DeclaredFeatures() []string { return []string{"InPlacePodLevelResourcesVerticalScaling"} }

// Allocation is what a node has set aside for a pod: the resources it was admitted with or, since
// then, resized to. The API's spec says what is wanted; the two differ while a resize waits for
// room (KEP-1287). The worker runs the pod with what is allocated.
type Allocation struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers"`
}

// AllocationOf is what the pod's spec says.
func AllocationOf(pod *v1.Pod) Allocation {
	a := Allocation{Pod: pod.Spec.Resources.DeepCopy(), Containers: map[string]v1.ResourceRequirements{}}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			a.Containers[list[i].Name] = *list[i].Resources.DeepCopy()
		}
	}
	return a
}

// Same says whether two allocations are equal, however their quantities are written.
func (a Allocation) Same(b Allocation) bool { return equality.Semantic.DeepEqual(a, b) }

// In returns the pod with these resources in its spec: the pod itself if it has them already.
func (a Allocation) In(pod *v1.Pod) *v1.Pod {
	if a.Same(AllocationOf(pod)) {
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

// SaveAllocation stores a pod's allocation, in the pod's directory, for the next agent. It is
// durable: an agent that started without it would admit the pod with the resources in its spec,
// and might refuse a pod whose resize was deferred.
func (l Layout) SaveAllocation(uid types.UID, a Allocation) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode the pod's resources: %w", err)
	}
	path := l.AllocationFile(uid)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	if err := durable.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("save the pod's resources: %w", err)
	}
	return nil
}

// LoadAllocation returns what SaveAllocation kept, or false.
func (l Layout) LoadAllocation(uid types.UID) (a Allocation, ok bool) {
	data, err := os.ReadFile(l.AllocationFile(uid))
	if err != nil || json.Unmarshal(data, &a) != nil {
		return Allocation{}, false
	}
	return a, true
}
