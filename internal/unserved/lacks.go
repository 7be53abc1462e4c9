// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// LacksAnnotation is an annotation of Nodes: the Features, separated by commas, that the node's kernel or container runtime
// lacks. The agent of the node sets it, because no field of the API shows all of them.
const LacksAnnotation = "kindred.dev/lacks"

// Feature is something that a pod can ask for, and that not each node has.
type Feature string

// The features of kernels and container runtimes.
const (
	AppArmor                = Feature("apparmor")
	ImageVolumes            = Feature("image-volumes")
	RecursiveReadOnlyMounts = Feature("recursive-read-only-mounts")
	SELinux                 = Feature("selinux")
	UserNamespaces          = Feature("user-namespaces")
)

// lacking reports whether no node has a feature. Nodes that report nothing may have it, and so may the first node if there
// is none yet.
func lacking(cluster Cluster, f Feature) bool {
	nodes := cluster.Nodes()
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return mayHave(n, f) })
}

func mayHave(n *corev1.Node, f Feature) bool {
	if lacks, ok := n.Annotations[LacksAnnotation]; ok && slices.Contains(strings.Split(lacks, ","), string(f)) {
		return false
	}
	switch f {
	case RecursiveReadOnlyMounts:
		return anyHandler(n, func(f *corev1.NodeRuntimeHandlerFeatures) *bool { return f.RecursiveReadOnlyMounts })
	case UserNamespaces:
		return anyHandler(n, func(f *corev1.NodeRuntimeHandlerFeatures) *bool { return f.UserNamespaces })
	}
	return true
}

// anyHandler reports whether a runtime handler of a node has a feature, or may have it.
func anyHandler(n *corev1.Node, feature func(*corev1.NodeRuntimeHandlerFeatures) *bool) bool {
	handlers := n.Status.RuntimeHandlers
	return len(handlers) == 0 || slices.ContainsFunc(handlers, func(h corev1.NodeRuntimeHandler) bool {
		return h.Features == nil || ptr.Deref(feature(h.Features), false)
	})
}

// noStrictGroups reports whether no node has the supplementalGroupsPolicy Strict. Each agent reports it.
func noStrictGroups(cluster Cluster) bool {
	nodes := cluster.Nodes()
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
		return n.Status.Features == nil || ptr.Deref(n.Status.Features.SupplementalGroupsPolicy, false)
	})
}

// noWindows reports whether no node runs Windows.
func noWindows(cluster Cluster) bool {
	return !slices.ContainsFunc(cluster.Nodes(), func(n *corev1.Node) bool { return n.Labels[corev1.LabelOSStable] == string(corev1.Windows) })
}
