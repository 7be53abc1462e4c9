// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// nodeAffinity applies a pod's nodeSelector and required node affinity as a filter, and its
// preferred node affinity as a score.
type nodeAffinity struct{}

func (nodeAffinity) Name() string { return "NodeAffinity" }

var (
	notMatched = rejectUnresolvable("node(s) didn't match Pod's node affinity/selector")
	conflict   = rejectUnresolvable("pod affinity terms conflict")
)

type nodeAffinityCheck struct {
	required nodeaffinity.RequiredNodeAffinity
	nodes    sets.Set[string]
}

func (c *nodeAffinityCheck) Nodes() sets.Set[string] { return c.nodes }

func (c *nodeAffinityCheck) Check(node *model.Node) *Rejection {
	// An invalid term, which validation refuses, matches nothing.
	if match, _ := c.required.Match(node.Node); !match {
		return notMatched
	}
	return nil
}

func (nodeAffinity) For(_ *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	required := requiredTerms(pod)
	if required == nil && len(pod.Spec.NodeSelector) == 0 {
		return nil, nil
	}
	check := &nodeAffinityCheck{required: nodeaffinity.GetRequiredNodeAffinity(pod.Pod)}
	if required != nil {
		check.nodes = namedNodes(required.NodeSelectorTerms)
	}
	if check.nodes != nil && check.nodes.Len() == 0 {
		return nil, conflict
	}
	return check, nil
}

func requiredTerms(pod *model.Pod) *v1.NodeSelector {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// namedNodes returns the nodes that terms name; nil unless each of the terms, which are
// alternatives, names its nodes, as in pods of a DaemonSet.
func namedNodes(terms []v1.NodeSelectorTerm) sets.Set[string] {
	var all sets.Set[string]
	for i := range terms {
		var names sets.Set[string]
		for _, field := range terms[i].MatchFields {
			if field.Key != metav1.ObjectNameField || field.Operator != v1.NodeSelectorOpIn {
				continue
			}
			values := sets.New(field.Values...)
			if names != nil {
				values = names.Intersection(values)
			}
			names = values
		}
		if names == nil {
			return nil
		}
		all = names.Union(all)
	}
	return all
}

func (nodeAffinity) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	required := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	switch event.Kind {
	case NodeAdded:
		match, _ := required.Match(event.Node)
		return match
	case NodeChanged:
		before, _ := required.Match(event.OldNode)
		after, _ := required.Match(event.Node)
		return !before && after
	case SelfChanged:
		// A gated pod may only narrow its affinity, but it may have been tried in between.
		return true
	default:
		return false
	}
}

func (nodeAffinity) Score(_ *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return
	}
	terms := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(terms) == 0 {
		return
	}
	preferred, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
	if err != nil {
		return
	}
	for i, node := range nodes {
		scores[i] = preferred.Score(node.Node)
	}
	normalize(scores, false)
}
