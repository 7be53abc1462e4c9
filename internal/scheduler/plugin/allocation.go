// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"math"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// leastAllocated prefers nodes with fewer requested resources.
type leastAllocated struct{}

func (leastAllocated) Name() string { return "NodeResourcesFit" }

func (leastAllocated) Score(_ *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	for i, node := range nodes {
		var sum, count int64
		add := func(taken, wanted, capacity int64) {
			if capacity == 0 {
				return
			}
			count++
			if left := capacity - taken - wanted; left > 0 {
				sum += left * MaxScore / capacity
			}
		}
		add(node.Weighed.MilliCPU, pod.Weight.MilliCPU, node.Allocatable.MilliCPU)
		add(node.Weighed.Memory, pod.Weight.Memory, node.Allocatable.Memory)
		if count > 0 {
			scores[i] = sum / count
		}
	}
}

// balancedAllocation prefers nodes on which the pod brings the requested shares of CPU and memory
// closer together, so that neither is left over. It does not score pods that request neither, which
// would all go to the same node.
type balancedAllocation struct{}

func (balancedAllocation) Name() string { return "NodeResourcesBalancedAllocation" }

func (balancedAllocation) Score(_ *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	cpu, memory := pod.Requests.MilliCPU, pod.Requests.Memory
	if cpu == 0 && memory == 0 {
		return
	}
	for i, node := range nodes {
		with := balance(node, cpu, memory)
		without := balance(node, 0, 0)
		// Both are between half of MaxScore and MaxScore, and so is the result: three
		// quarters if the pod changes nothing.
		scores[i] = MaxScore/2 + (MaxScore/2+with-without)/2
	}
}

// balance returns how close the requested shares of CPU and memory on a node would be: one minus
// their standard deviation, which for two values is half their difference.
func balance(node *model.Node, cpu, memory int64) int64 {
	if node.Allocatable.MilliCPU == 0 || node.Allocatable.Memory == 0 {
		return MaxScore
	}
	c := share(node.Requested.MilliCPU+cpu, node.Allocatable.MilliCPU)
	m := share(node.Requested.Memory+memory, node.Allocatable.Memory)
	return int64((1 - math.Abs(c-m)/2) * MaxScore)
}

func share(taken, capacity int64) float64 {
	return min(1, float64(taken)/float64(capacity))
}
