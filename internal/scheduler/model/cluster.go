// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster has all nodes and the pods on them, including pods whose binding the API does not have
// yet.
type Cluster struct {
	// nodes also has nodes that were deleted, or not seen yet, but have pods.
	nodes map[string]*Node
	// list has the existing nodes, in the order in which they were added.
	list []*Node
	pods map[types.UID]place
	// imageNodes counts the nodes that have an image.
	imageNodes map[string]int
	namespaces map[string]labels.Set
	// withAffinity counts the pods with pod affinity or anti-affinity. Most clusters have none, and
	// filters need not search for them.
	withAffinity int
	// claimUsers counts the pods on nodes that use each claim; not those for which it was created.
	claimUsers map[types.NamespacedName]int
	// Volumes has the objects of storage, Devices those of dynamic resource allocation.
	Volumes *Volumes
	Devices *Devices
	// groups has the PodGroups, membership the group of each of their pods.
	groups     map[types.NamespacedName]*Group
	membership map[types.UID]types.NamespacedName

	// nominated has the pods nominated to each node, nomination the node of each of these pods.
	nominated  map[string][]*Pod
	nomination map[types.UID]string
}

type place struct {
	pod  *Pod
	node string
}

// NewCluster returns an empty cluster.
func NewCluster() *Cluster {
	return &Cluster{
		nodes:      map[string]*Node{},
		pods:       map[types.UID]place{},
		imageNodes: map[string]int{},
		namespaces: map[string]labels.Set{},
		claimUsers: map[types.NamespacedName]int{},
		Volumes:    newVolumes(),
		Devices:    newDevices(),
		groups:     map[types.NamespacedName]*Group{},
		membership: map[types.UID]types.NamespacedName{},
		nominated:  map[string][]*Pod{},
		nomination: map[types.UID]string{},
	}
}

// Nodes returns the existing nodes, in the order in which they were added. The caller must not
// change the slice.
func (c *Cluster) Nodes() []*Node { return c.list }

// Node returns the node with a name, or nil.
func (c *Cluster) Node(name string) *Node {
	if n := c.nodes[name]; n != nil && n.Node != nil {
		return n
	}
	return nil
}

// node returns the node with a name, and creates it if it is missing.
func (c *Cluster) node(name string) *Node {
	n := c.nodes[name]
	if n == nil {
		n = newNode()
		c.nodes[name] = n
	}
	return n
}

// SetNode adds or updates a node, and returns its former object, or nil.
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

// RemoveNode removes a node. Pods stay on it, because they may still run when it is added again.
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

// forget drops a deleted node without pods.
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

// NodesWithImage returns how many nodes have an image. The name is one that NormalImage returned.
func (c *Cluster) NodesWithImage(name string) int { return c.imageNodes[name] }

// Pod returns a pod that is on a node, or nil.
func (c *Cluster) Pod(uid types.UID) *Pod { return c.pods[uid].pod }

// NodeOf returns the name of a pod's node, which may not exist, or "" if the pod has none.
func (c *Cluster) NodeOf(uid types.UID) string { return c.pods[uid].node }

// Place puts a pod on a node, or updates it there, and removes it from any other node. It returns
// the former pod, or nil.
func (c *Cluster) Place(pod *Pod, node string) *Pod {
	before := c.Remove(pod.UID)
	n := c.node(node)
	n.Add(pod)
	c.pods[pod.UID] = place{pod, node}
	if pod.HasAffinity() {
		c.withAffinity++
	}
	c.countClaims(pod, 1)
	return before
}

// Remove removes a pod from its node and returns it; nil if it had none.
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
	c.countClaims(p.pod, -1)
	c.forget(p.node, n)
	return p.pod
}

func (c *Cluster) countClaims(pod *Pod, delta int) {
	for _, claim := range pod.Claims {
		if claim.Ephemeral {
			continue
		}
		if c.claimUsers[claim.Key] += delta; c.claimUsers[claim.Key] == 0 {
			delete(c.claimUsers, claim.Key)
		}
	}
}

// IsClaimInUse reports whether a pod on a node uses a claim.
func (c *Cluster) IsClaimInUse(key types.NamespacedName) bool { return c.claimUsers[key] > 0 }

// HasAffinity reports whether any pod on any node has pod affinity or anti-affinity.
func (c *Cluster) HasAffinity() bool { return c.withAffinity > 0 }

// SetNamespace records the labels of a namespace.
func (c *Cluster) SetNamespace(name string, set labels.Set) { c.namespaces[name] = set }

// RemoveNamespace forgets a namespace.
func (c *Cluster) RemoveNamespace(name string) { delete(c.namespaces, name) }

// Namespace returns the labels of a namespace.
func (c *Cluster) Namespace(name string) labels.Set { return c.namespaces[name] }

// Nominate sets the nominated node of a pending pod; an empty node clears it.
func (c *Cluster) Nominate(pod *Pod, node string) {
	if old, found := c.nomination[pod.UID]; found {
		delete(c.nomination, pod.UID)
		left := slices.DeleteFunc(c.nominated[old], func(p *Pod) bool { return p.UID == pod.UID })
		if len(left) == 0 {
			delete(c.nominated, old)
		} else {
			c.nominated[old] = left
		}
	}
	if node != "" {
		c.nomination[pod.UID] = node
		c.nominated[node] = append(c.nominated[node], pod)
	}
}

// Nomination returns the nominated node of a pod, or "".
func (c *Cluster) Nomination(uid types.UID) string { return c.nomination[uid] }

// Nominated returns the pods nominated to a node.
func (c *Cluster) Nominated(node string) []*Pod { return c.nominated[node] }
