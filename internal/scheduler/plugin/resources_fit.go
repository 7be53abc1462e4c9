// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// resourcesFit keeps the sum of requests on a node within its allocatable resources. It ignores
// limits and actual usage.
type resourcesFit struct{}

func (resourcesFit) Name() string { return "NodeResourcesFit" }

func (resourcesFit) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	requests := requestsOf(pod)
	if len(pod.Requests.Scalar) == 0 || len(cluster.Devices.Classes) == 0 {
		return CheckFunc(func(node *model.Node) *Rejection { return shortage(requests, node) }), nil
	}
	return CheckFunc(func(node *model.Node) *Rejection {
		countable := slices.DeleteFunc(slices.Clone(requests), func(r request) bool { return isDevice(cluster.Devices, r.name, node) })
		return shortage(countable, node)
	}), nil
}

// request is a requested resource.
type request struct {
	name   v1.ResourceName
	amount int64
}

// requestsOf returns the resources that a pod requests, in a stable order.
func requestsOf(pod *model.Pod) []request {
	var list []request
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if amount := pod.Requests.Get(name); amount > 0 {
			list = append(list, request{name, amount})
		}
	}
	plain := len(list)
	for name, amount := range pod.Requests.Scalar {
		if amount > 0 {
			list = append(list, request{name, amount})
		}
	}
	slices.SortFunc(list[plain:], func(a, b request) int { return cmp.Compare(a.name, b.name) })
	return list
}

// shortage returns a rejection that names each resource that is insufficient on a node, or nil if
// all suffice. It is unresolvable if even the empty node has too little of one.
func shortage(requests []request, node *model.Node) *Rejection {
	var short *Rejection
	if int64(len(node.Pods))+1 > node.MaxPods {
		short = reject("Too many pods")
	}
	for _, r := range requests {
		capacity := node.Allocatable.Get(r.name)
		if r.amount <= capacity-node.Requested.Get(r.name) {
			continue
		}
		if short == nil {
			short = &Rejection{}
		}
		short.Reasons = append(short.Reasons, "Insufficient "+string(r.name))
		short.Unresolvable = short.Unresolvable || r.amount > capacity
	}
	return short
}

func (resourcesFit) Wakes(cluster *model.Cluster, event *Event, pod *model.Pod) bool {
	if extendedOf(cluster.Devices, pod) != nil {
		// Devices may satisfy a request, so that these rules are too narrow.
		return event.Kind != PodPlaced
	}
	switch event.Kind {
	case SelfChanged:
		return true
	case PodGone:
		return hasRoom(pod, cluster.Node(event.On))
	case PodChanged:
		return shrunk(event.OldPod, event.Pod) && hasRoom(pod, cluster.Node(event.On))
	case NodeAdded:
		return fitsEmpty(requestsOf(pod), event.Node.Status.Allocatable)
	case NodeChanged:
		requests := requestsOf(pod)
		after := event.Node.Status.Allocatable
		return fitsEmpty(requests, after) && grown(requests, event.OldNode.Status.Allocatable, after)
	default:
		return false
	}
}

// hasRoom reports whether a pod fits on a node, counting only the pods that it cannot preempt.
func hasRoom(pod *model.Pod, node *model.Node) bool {
	if node == nil {
		return false
	}
	taken := make(map[v1.ResourceName]int64)
	requests := requestsOf(pod)
	staying := int64(0)
	for _, other := range node.Pods {
		if other.Priority < pod.Priority {
			continue
		}
		staying++
		for _, r := range requests {
			taken[r.name] += other.Requests.Get(r.name)
		}
	}
	return staying < node.MaxPods && !slices.ContainsFunc(requests, func(r request) bool {
		return r.amount > node.Allocatable.Get(r.name)-taken[r.name]
	})
}

// shrunk reports whether a pod requests less of a resource than before.
func shrunk(before, after *model.Pod) bool {
	return slices.ContainsFunc(requestsOf(before), func(r request) bool { return after.Requests.Get(r.name) < r.amount })
}

// fitsEmpty reports whether a pod would fit on the node if it were empty.
func fitsEmpty(requests []request, allocatable v1.ResourceList) bool {
	has := model.ResourcesOf(allocatable)
	if allocatable.Pods().Value() < 1 {
		return false
	}
	return !slices.ContainsFunc(requests, func(r request) bool { return r.amount > has.Get(r.name) })
}

// grown reports whether a node has more of a requested resource than before.
func grown(requests []request, before, after v1.ResourceList) bool {
	if after.Pods().Cmp(*before.Pods()) > 0 {
		return true
	}
	had, has := model.ResourcesOf(before), model.ResourcesOf(after)
	return slices.ContainsFunc(requests, func(r request) bool { return has.Get(r.name) > had.Get(r.name) })
}
