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

// fitness holds two decisions about a node: whether a DaemonSet may start a pod there, and
// whether an existing pod may stay. Where a pod may start, it may stay.
type fitness struct {
	start, stay bool
}

// fitter checks nodes against a DaemonSet's template, which it parses once for all nodes.
type fitter struct {
	nodeName    string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

func newFitter(ds *appsv1.DaemonSet) fitter {
	spec := &ds.Spec.Template.Spec
	return fitter{
		nodeName:    spec.NodeName,
		affinity:    nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		tolerations: withDaemonTolerations(spec),
	}
}

// fit returns the fitness of a node. A pod may start where the scheduler would place it. It may
// stay until the node gets a NoExecute taint or loses a label.
func (f fitter) fit(node *corev1.Node) fitness {
	if f.nodeName != "" && f.nodeName != node.Name {
		return fitness{}
	}
	// Invalid terms of an affinity are ignored.
	if matches, _ := f.affinity.Match(node); !matches {
		return fitness{}
	}
	stay := f.tolerates(node, corev1.TaintEffectNoExecute)
	return fitness{start: stay && f.tolerates(node, corev1.TaintEffectNoSchedule), stay: stay}
}

func (f fitter) tolerates(node *corev1.Node, effect corev1.TaintEffect) bool {
	_, untolerated := corehelpers.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, f.tolerations,
		func(t *corev1.Taint) bool { return t.Effect == effect }, false)
	return !untolerated
}

// daemonTaints are tolerated by every daemon pod (DaemonSet, "Taints and tolerations"): a
// node's agents are needed before the node is ready, and when it has a problem.
var daemonTaints = []corev1.Taint{
	{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
}

// withDaemonTolerations returns the tolerations of a template's pods: its own, and one without
// time limit for each of daemonTaints. A pod on the host network also tolerates a missing pod
// network.
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
