// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster is all nodes and the pods on them, those included which were given a node
// a moment ago and which the API does not know of yet.
type Cluster struct {
	// nodes also holds nodes that are gone, or not seen yet, but have pods.
	nodes map[string]*Node
	list  []*Node
	pods  map[types.UID]place
	// imageNodes counts the nodes which have an image.
	imageNodes map[string]int
	namespaces map[string]labels.Set
	// withAffinity counts the pods that say something about other pods; most
	// clusters have none, and then nobody need look for them.
	withAffinity int

	nominated map[string][]*Pod
	nominee   map[types.UID]string
}

type place struct {
	pod  *Pod
	node string
}

// NewCluster is a cluster without anything in it.
func NewCluster() *Cluster {
	return &Cluster{
		nodes:      map[string]*Node{},
		pods:       map[types.UID]place{},
		imageNodes: map[string]int{},
		namespaces: map[string]labels.Set{},
		nominated:  map[string][]*Pod{},
		nominee:    map[types.UID]string{},
	}
}

// Nodes are the nodes that exist, in the order in which they came. The slice is the
// cluster's own.
func (c *Cluster) Nodes() []*Node { return c.list }

// Node is the node of a name, or nil.
func (c *Cluster) Node(name string) *Node {
	if n := c.nodes[name]; n != nil && n.Node != nil {
		return n
	}
	return nil
}

// node is the node of a name, made if need be.
func (c *Cluster) node(name string) *Node {
	n := c.nodes[name]
	if n == nil {
		n = newNode()
		c.nodes[name] = n
	}
	return n
}

// SetNode adds or changes a node, and returns the object it had before, or nil.
func (c *Cluster) SetNode(object *v1.Node) *v1.Node {
	n := c.node(object.Name)
	before := n.Node
	if before == nil {
		c.list = append(c.list, n)
	}
	c.countImages(n, -1)
	n.set(object)
	c.countImages(n, 1)
	return before
}

// RemoveNode removes a node. Pods on it keep their place, for they may still be
// running when it comes back.
func (c *Cluster) RemoveNode(name string) {
	n := c.Node(name)
	if n == nil {
		return
	}
	c.countImages(n, -1)
	c.list = slices.DeleteFunc(c.list, func(other *Node) bool { return other == n })
	n.Node = nil
	n.Images = nil
	c.forget(name, n)
}

// forget drops a node that is gone and has no pods.
func (c *Cluster) forget(name string, n *Node) {
	if n.Node == nil && len(n.Pods) == 0 {
		delete(c.nodes, name)
	}
}

func (c *Cluster) countImages(n *Node, delta int) {
	for name := range n.Images {
		if c.imageNodes[name] += delta; c.imageNodes[name] == 0 {
			delete(c.imageNodes, name)
		}
	}
}

// NodesWithImage is on how many nodes an image is, by its normal name.
func (c *Cluster) NodesWithImage(name string) int { return c.imageNodes[name] }

// Pod is the pod that has a node, or nil.
func (c *Cluster) Pod(uid types.UID) *Pod { return c.pods[uid].pod }

// Where is the node of a pod, whether it exists or not; "" if the pod has none.
func (c *Cluster) Where(uid types.UID) string { return c.pods[uid].node }

// Place puts a pod on a node, whether it is new there, has changed, or was
// elsewhere. It returns the pod as it was before, or nil.
func (c *Cluster) Place(pod *Pod, node string) *Pod {
	before := c.Remove(pod.UID)
	n := c.node(node)
	n.Add(pod)
	c.pods[pod.UID] = place{pod, node}
	if pod.HasAffinity() {
		c.withAffinity++
	}
	return before
}

// Remove takes a pod off its node, and returns it, or nil if it had none.
func (c *Cluster) Remove(uid types.UID) *Pod {
	p, found := c.pods[uid]
	if !found {
		return nil
	}
	delete(c.pods, uid)
	n := c.nodes[p.node]
	n.Remove(p.pod)
	if p.pod.HasAffinity() {
		c.withAffinity--
	}
	c.forget(p.node, n)
	return p.pod
}

// HasAffinity tells whether any pod on any node says something about other pods.
func (c *Cluster) HasAffinity() bool { return c.withAffinity > 0 }

// SetNamespace records the labels of a namespace.
func (c *Cluster) SetNamespace(name string, set labels.Set) { c.namespaces[name] = set }

// RemoveNamespace forgets a namespace.
func (c *Cluster) RemoveNamespace(name string) { delete(c.namespaces, name) }

// Namespace are the labels of a namespace.
func (c *Cluster) Namespace(name string) labels.Set { return c.namespaces[name] }

// Nominate records that room is being made for a waiting pod on a node; an empty
// node takes that back.
func (c *Cluster) Nominate(pod *Pod, node string) {
	if old, found := c.nominee[pod.UID]; found {
		delete(c.nominee, pod.UID)
		left := slices.DeleteFunc(c.nominated[old], func(p *Pod) bool { return p.UID == pod.UID })
		if len(left) == 0 {
			delete(c.nominated, old)
		} else {
			c.nominated[old] = left
		}
	}
	if node != "" {
		c.nominee[pod.UID] = node
		c.nominated[node] = append(c.nominated[node], pod)
	}
}

// Nomination is the node on which room is being made for a pod, or "".
func (c *Cluster) Nomination(uid types.UID) string { return c.nominee[uid] }

// Nominated are the pods for which room is being made on a node.
func (c *Cluster) Nominated(node string) []*Pod { return c.nominated[node] }
