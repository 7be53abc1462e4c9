// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// fitness says what a DaemonSet may do on a node: start a pod there, and let one that
// is there stay. A node that may start one may keep it.
type fitness struct {
	start, stay bool
}

// judge knows a DaemonSet's demands on nodes. They are read from the template once, for
// many nodes.
type judge struct {
	nodeName    string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

func judgeOf(ds *appsv1.DaemonSet) judge {
	spec := &ds.Spec.Template.Spec
	return judge{
		nodeName:    spec.NodeName,
		affinity:    nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		tolerations: withDaemonTolerations(spec),
	}
}

// fit judges one node. A pod may start where the scheduler would let it; it may stay
// until a NoExecute taint, or a label that the node has lost, drives it away.
func (j judge) fit(node *corev1.Node) fitness {
	if j.nodeName != "" && j.nodeName != node.Name {
		return fitness{}
	}
	// An affinity that cannot be read matches what the readable part of it matches.
	if matches, _ := j.affinity.Match(node); !matches {
		return fitness{}
	}
	stay := j.tolerates(node, corev1.TaintEffectNoExecute)
	return fitness{start: stay && j.tolerates(node, corev1.TaintEffectNoSchedule), stay: stay}
}

func (j judge) tolerates(node *corev1.Node, effect corev1.TaintEffect) bool {
	_, untolerated := corehelpers.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, j.tolerations,
		func(t *corev1.Taint) bool { return t.Effect == effect }, false)
	return !untolerated
}

// daemonTaints are tolerated by every daemon pod (DaemonSet, "Taints and tolerations"):
// what a node's agents do is wanted most when something is amiss with the node, and
// needed before a node is ready.
var daemonTaints = []corev1.Taint{
	{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
}

// withDaemonTolerations returns the tolerations of the pods of a template: its own, and
// for each of daemonTaints one that never ends. A pod on the node's network can work
// before there is a pod network.
func withDaemonTolerations(spec *corev1.PodSpec) []corev1.Toleration {
	out := slices.Clone(spec.Tolerations)
	taints := daemonTaints
	if spec.HostNetwork {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, taint := range taints {
		forever := corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists, Effect: taint.Effect}
		out = append(slices.DeleteFunc(out, func(t corev1.Toleration) bool { return t.MatchToleration(&forever) }), forever)
	}
	return out
}
