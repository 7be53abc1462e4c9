// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is a node, with its allocatable resources and the requests of its pods.
type Node struct {
	*v1.Node
	Allocatable Resources
	MaxPods     int64
	// Images are the sizes of the node's images, by normal name.
	Images map[string]int64

	// Requested is the sum of the pods' requests, Weighed is the sum of their weights.
	Requested Resources
	Weighed   Resources
	Ports     Ports
	Pods      []*Pod
	// WithAffinity are the pods with pod affinity or anti-affinity.
	WithAffinity []*Pod
	// owned counts the pods of each controller that are not being deleted.
	owned map[types.UID]int
}

func newNode() *Node {
	return &Node{Ports: Ports{}, owned: map[types.UID]int{}}
}

// Owned returns how many pods of a controller are on the node and not being deleted.
func (n *Node) Owned(controller types.UID) int { return n.owned[controller] }

// Clone returns a copy, for preemption.
func (n *Node) Clone() *Node {
	c := *n
	c.Requested.Scalar = maps.Clone(n.Requested.Scalar)
	c.Weighed.Scalar = maps.Clone(n.Weighed.Scalar)
	c.Ports = maps.Clone(n.Ports)
	c.Pods = slices.Clone(n.Pods)
	c.WithAffinity = slices.Clone(n.WithAffinity)
	c.owned = maps.Clone(n.owned)
	return &c
}

// Add puts a pod on the node.
func (n *Node) Add(pod *Pod) {
	n.Pods = append(n.Pods, pod)
	n.Requested.add(&pod.Requests, 1)
	n.Weighed.add(&pod.Weight, 1)
	n.Ports.add(pod.Ports)
	if pod.HasAffinity() {
		n.WithAffinity = append(n.WithAffinity, pod)
	}
	if pod.Owner != "" && pod.DeletionTimestamp == nil {
		n.owned[pod.Owner]++
	}
}

// Remove removes a pod from the node.
func (n *Node) Remove(pod *Pod) {
	n.Pods = without(n.Pods, pod)
	n.Requested.add(&pod.Requests, -1)
	n.Weighed.add(&pod.Weight, -1)
	n.Ports.remove(pod.Ports)
	if pod.HasAffinity() {
		n.WithAffinity = without(n.WithAffinity, pod)
	}
	if pod.Owner != "" && pod.DeletionTimestamp == nil {
		if n.owned[pod.Owner]--; n.owned[pod.Owner] <= 0 {
			delete(n.owned, pod.Owner)
		}
	}
}

// without removes a pod, and does not keep the order.
func without(pods []*Pod, pod *Pod) []*Pod {
	i := slices.Index(pods, pod)
	if i < 0 {
		return pods
	}
	last := len(pods) - 1
	pods[i] = pods[last]
	pods[last] = nil
	return pods[:last]
}

// set adds or updates the node's object.
func (n *Node) set(object *v1.Node) {
	n.Node = object
	n.Allocatable = ResourcesOf(object.Status.Allocatable)
	n.MaxPods = object.Status.Allocatable.Pods().Value()
	n.Images = make(map[string]int64, len(object.Status.Images))
	for _, image := range object.Status.Images {
		for _, name := range image.Names {
			n.Images[NormalImage(name)] = image.SizeBytes
		}
	}
}

// NormalImage returns the name by which images are compared: with the default tag, if it has
// neither tag nor digest.
func NormalImage(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		return name + ":latest"
	}
	return name
}
