// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"math"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// podAffinity applies pod affinity and anti-affinity: required terms as a filter, preferred ones as
// a score. Nodes with the same value of a term's topology label are in the same domain.
//
// Anti-affinity is symmetric: the anti-affinity of a pod on a node also keeps new pods away.
type podAffinity struct{}

func (podAffinity) Name() string { return "InterPodAffinity" }

var (
	affinityNotMet             = rejectUnresolvable("node(s) didn't match pod affinity rules")
	antiAffinityNotMet         = reject("node(s) didn't match pod anti-affinity rules")
	existingAntiAffinityNotMet = reject("node(s) didn't satisfy existing pods anti-affinity rules")
)

// domain is a value of a topology label, and stands for the nodes that have it.
type domain struct{ key, value string }

// tally counts something in each domain.
type tally map[domain]int64

func (t tally) add(node *model.Node, key string, delta int64) {
	value, found := node.Labels[key]
	if !found {
		return
	}
	d := domain{key, value}
	if t[d] += delta; t[d] == 0 {
		delete(t, d)
	}
}

// sum returns the sum over all domains of a node.
func (t tally) sum(node *model.Node) int64 {
	var sum int64
	if len(t) == 0 {
		return 0
	}
	for key, value := range node.Labels {
		sum += t[domain{key, value}]
	}
	return sum
}

type affinityCheck struct {
	cluster *model.Cluster
	pod     *model.Pod
	// affinity counts the pods that all of the pod's affinity terms select.
	affinity tally
	// antiAffinity counts the pods that one of the pod's anti-affinity terms selects.
	antiAffinity tally
	// existingAntiAffinity counts the anti-affinity terms of existing pods that select the pod.
	existingAntiAffinity tally
}

func (podAffinity) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	own := len(pod.Affinity)+len(pod.AntiAffinity) > 0
	if !own && !cluster.HasAffinity() {
		return nil, nil
	}
	check := &affinityCheck{cluster: cluster, pod: pod, affinity: tally{}, antiAffinity: tally{}, existingAntiAffinity: tally{}}
	for _, node := range cluster.Nodes() {
		pods := node.WithAffinity
		if own {
			pods = node.Pods
		}
		for _, other := range pods {
			check.Move(other, node, 1)
		}
	}
	if !own && len(check.existingAntiAffinity) == 0 {
		return nil, nil
	}
	return check, nil
}

func (a *affinityCheck) Move(other *model.Pod, node *model.Node, delta int) {
	d := int64(delta)
	namespaceLabels := a.cluster.Namespace(other.Namespace)
	if model.MatchesAll(a.pod.Affinity, other, namespaceLabels) {
		for i := range a.pod.Affinity {
			a.affinity.add(node, a.pod.Affinity[i].TopologyKey, d)
		}
	}
	for i := range a.pod.AntiAffinity {
		if term := &a.pod.AntiAffinity[i]; term.Matches(other, namespaceLabels) {
			a.antiAffinity.add(node, term.TopologyKey, d)
		}
	}
	for i := range other.AntiAffinity {
		if term := &other.AntiAffinity[i]; term.Matches(a.pod, a.cluster.Namespace(a.pod.Namespace)) {
			a.existingAntiAffinity.add(node, term.TopologyKey, d)
		}
	}
}

func (a *affinityCheck) Clone() Spanning {
	c := *a
	c.affinity, c.antiAffinity, c.existingAntiAffinity = maps.Clone(a.affinity), maps.Clone(a.antiAffinity), maps.Clone(a.existingAntiAffinity)
	return &c
}

func (a *affinityCheck) Check(node *model.Node) *Rejection {
	if !a.satisfiesAffinity(node) {
		return affinityNotMet
	}
	for i := range a.pod.AntiAffinity {
		key := a.pod.AntiAffinity[i].TopologyKey
		if value, found := node.Labels[key]; found && a.antiAffinity[domain{key, value}] > 0 {
			return antiAffinityNotMet
		}
	}
	if a.existingAntiAffinity.sum(node) > 0 {
		return existingAntiAffinityNotMet
	}
	return nil
}

// satisfiesAffinity reports whether, for every affinity term, the node's domain has a selected pod.
// If no such pod exists, a pod that its own terms select may be the first.
func (a *affinityCheck) satisfiesAffinity(node *model.Node) bool {
	found := true
	for i := range a.pod.Affinity {
		key := a.pod.Affinity[i].TopologyKey
		value, labelled := node.Labels[key]
		if !labelled {
			return false
		}
		found = found && a.affinity[domain{key, value}] > 0
	}
	if found {
		return true
	}
	return len(a.affinity) == 0 && model.MatchesAll(a.pod.Affinity, a.pod, a.cluster.Namespace(a.pod.Namespace))
}

func (podAffinity) Wakes(cluster *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded, NodeRemoved, SelfChanged, NamespaceChanged:
		return true
	case NodeChanged:
		return !maps.Equal(event.OldNode.Labels, event.Node.Labels)
	case PodPlaced:
		return requiresAffinity(cluster, pod, event.Pod)
	case PodGone:
		return mayUnblock(cluster, pod, event.OldPod)
	case PodChanged:
		return !maps.Equal(event.OldPod.Labels, event.Pod.Labels) &&
			(mayUnblock(cluster, pod, event.OldPod) || requiresAffinity(cluster, pod, event.Pod))
	default:
		return false
	}
}

// requiresAffinity reports whether a pod requires affinity to another.
func requiresAffinity(cluster *model.Cluster, pod, other *model.Pod) bool {
	return model.MatchesAll(pod.Affinity, other, cluster.Namespace(other.Namespace))
}

// mayUnblock reports whether the change or removal of another pod may make a pod schedulable: one of
// them had anti-affinity to the other; or the other was the last that the pod's affinity selects, so
// that the pod may now be the first (see satisfiesAffinity).
func mayUnblock(cluster *model.Cluster, pod, other *model.Pod) bool {
	return requiresAffinity(cluster, pod, other) ||
		model.MatchesAny(pod.AntiAffinity, other, cluster.Namespace(other.Namespace)) ||
		model.MatchesAny(other.AntiAffinity, pod, cluster.Namespace(pod.Namespace))
}

func (podAffinity) Score(cluster *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	hasPreferences := len(pod.PreferredAffinity)+len(pod.PreferredAntiAffinity) > 0
	if !hasPreferences && !cluster.HasAffinity() {
		return
	}
	preference := tally{}
	for _, node := range cluster.Nodes() {
		pods := node.WithAffinity
		if hasPreferences {
			pods = node.Pods
		}
		for _, other := range pods {
			preference.addPreferences(cluster, pod, other, node)
		}
	}
	if len(preference) == 0 {
		return
	}
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for i, node := range nodes {
		scores[i] = preference.sum(node)
		least, most = min(least, scores[i]), max(most, scores[i])
	}
	for i := range scores {
		if most == least {
			scores[i] = 0
			continue
		}
		scores[i] = int64(MaxScore * (float64(scores[i]-least) / float64(most-least)))
	}
}

// addPreferences adds the weights of the preferred terms of a pending pod that select a pod on a
// node, and of those of the pod on the node that select the pending pod. Each required affinity term
// of the pod on the node counts 1.
func (t tally) addPreferences(cluster *model.Cluster, pod, other *model.Pod, node *model.Node) {
	t.addTerms(pod.PreferredAffinity, cluster, other, node, 1)
	t.addTerms(pod.PreferredAntiAffinity, cluster, other, node, -1)
	t.addTerms(other.PreferredAffinity, cluster, pod, node, 1)
	t.addTerms(other.PreferredAntiAffinity, cluster, pod, node, -1)
	for i := range other.Affinity {
		if term := &other.Affinity[i]; term.Matches(pod, cluster.Namespace(pod.Namespace)) {
			t.add(node, term.TopologyKey, 1)
		}
	}
}

func (t tally) addTerms(terms []model.WeightedTerm, cluster *model.Cluster, of *model.Pod, node *model.Node, sign int64) {
	for i := range terms {
		if term := &terms[i]; term.Matches(of, cluster.Namespace(of.Namespace)) {
			t.add(node, term.TopologyKey, sign*term.Weight)
		}
	}
}
