// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// resourcesFit keeps the sum of requests on a node within its allocatable resources. It ignores
// limits and actual usage.
type resourcesFit struct{}

func (resourcesFit) Name() string { return "NodeResourcesFit" }

func (resourcesFit) For(_ *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	wanted := wants(pod)
	return CheckFunc(func(node *model.Node) *Rejection { return shortage(wanted, node) }), nil
}

// want is a requested resource.
type want struct {
	name   v1.ResourceName
	amount int64
}

// wants returns the resources that a pod requests, in a stable order.
func wants(pod *model.Pod) []want {
	var list []want
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if amount := pod.Requests.Get(name); amount > 0 {
			list = append(list, want{name, amount})
		}
	}
	plain := len(list)
	for name, amount := range pod.Requests.Scalar {
		if amount > 0 {
			list = append(list, want{name, amount})
		}
	}
	slices.SortFunc(list[plain:], func(a, b want) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return list
}

// shortage returns a rejection with the resources that a node has too little of; nil if there are
// none.
func shortage(wanted []want, node *model.Node) *Rejection {
	var short *Rejection
	if int64(len(node.Pods))+1 > node.MaxPods {
		short = because("Too many pods")
	}
	for _, w := range wanted {
		capacity := node.Allocatable.Get(w.name)
		if w.amount <= capacity-node.Requested.Get(w.name) {
			continue
		}
		if short == nil {
			short = &Rejection{}
		}
		short.Reasons = append(short.Reasons, "Insufficient "+string(w.name))
		short.Final = short.Final || w.amount > capacity
	}
	return short
}

func (resourcesFit) Wakes(cluster *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case SelfChanged:
		return true
	case PodGone:
		return roomFor(pod, cluster.Node(event.On))
	case PodChanged:
		return shrunk(event.OldPod, event.Pod) && roomFor(pod, cluster.Node(event.On))
	case NodeAdded:
		return fitsEmpty(wants(pod), event.Node.Status.Allocatable)
	case NodeChanged:
		wanted := wants(pod)
		after := event.Node.Status.Allocatable
		return fitsEmpty(wanted, after) && grown(wanted, event.OldNode.Status.Allocatable, after)
	default:
		return false
	}
}

// roomFor reports whether a pod fits on a node, counting only the pods that it cannot preempt.
func roomFor(pod *model.Pod, node *model.Node) bool {
	if node == nil {
		return false
	}
	taken := make(map[v1.ResourceName]int64)
	wanted := wants(pod)
	staying := int64(0)
	for _, other := range node.Pods {
		if other.Priority < pod.Priority {
			continue
		}
		staying++
		for _, w := range wanted {
			taken[w.name] += other.Requests.Get(w.name)
		}
	}
	return staying < node.MaxPods && !slices.ContainsFunc(wanted, func(w want) bool {
		return w.amount > node.Allocatable.Get(w.name)-taken[w.name]
	})
}

// shrunk reports whether a pod requests less of a resource than before.
func shrunk(before, after *model.Pod) bool {
	return slices.ContainsFunc(wants(before), func(w want) bool { return after.Requests.Get(w.name) < w.amount })
}

// fitsEmpty reports whether a pod would fit on the node if it were empty.
func fitsEmpty(wanted []want, allocatable v1.ResourceList) bool {
	has := model.ResourcesOf(allocatable)
	if allocatable.Pods().Value() < 1 {
		return false
	}
	return !slices.ContainsFunc(wanted, func(w want) bool { return w.amount > has.Get(w.name) })
}

// grown reports whether a node has more of a wanted resource than before.
func grown(wanted []want, before, after v1.ResourceList) bool {
	if after.Pods().Cmp(*before.Pods()) > 0 {
		return true
	}
	had, has := model.ResourcesOf(before), model.ResourcesOf(after)
	return slices.ContainsFunc(wanted, func(w want) bool { return has.Get(w.name) > had.Get(w.name) })
}
