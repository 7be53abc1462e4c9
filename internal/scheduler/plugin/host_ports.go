// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/kindred-project/kindred/internal/scheduler/model"

// hostPorts keeps pods with the same host port on different nodes.
type hostPorts struct{}

func (hostPorts) Name() string { return "NodePorts" }

var portTaken = reject("node(s) didn't have free ports for the requested pod ports")

func (hostPorts) For(_ *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	if len(pod.Ports) == 0 {
		return nil, nil
	}
	return CheckFunc(func(node *model.Node) *Rejection {
		if !areFree(node.Ports, pod.Ports) {
			return portTaken
		}
		return nil
	}), nil
}

func areFree(taken model.Ports, wanted []model.Port) bool {
	for _, port := range wanted {
		if !taken.Free(port) {
			return false
		}
	}
	return true
}

func (hostPorts) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded:
		return true
	case PodGone:
		freed := model.Ports{}
		for _, port := range event.OldPod.Ports {
			freed[port]++
		}
		return !areFree(freed, pod.Ports)
	default:
		return false
	}
}
