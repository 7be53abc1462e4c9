// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"math"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// podAffinity brings pods together or keeps them apart, as they ask. Terms that must
// hold are a filter, the others a score. "Together" is on nodes which have the same
// value of a term's topology label.
//
// Anti-affinity works both ways: a pod on a node keeps away a new pod it does not
// want near, even if the new one says nothing.
type podAffinity struct{}

func (podAffinity) Name() string { return "InterPodAffinity" }

var (
	notNear   = finally("node(s) didn't match pod affinity rules")
	notApart  = because("node(s) didn't match pod anti-affinity rules")
	unwelcome = because("node(s) didn't satisfy existing pods anti-affinity rules")
)

// domain is a value of a topology label: the nodes that have it are together.
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

// sum is the count of all domains a node is in.
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
	// near counts pods which all of the pod's affinity terms speak of, apart those of
	// which one of its anti-affinity terms does, and hostile the terms of other pods
	// that speak of it.
	near, apart, hostile tally
}

func (podAffinity) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	own := len(pod.Affinity)+len(pod.AntiAffinity) > 0
	if !own && !cluster.HasAffinity() {
		return nil, nil
	}
	check := &affinityCheck{cluster: cluster, pod: pod, near: tally{}, apart: tally{}, hostile: tally{}}
	for _, node := range cluster.Nodes() {
		pods := node.WithAffinity
		if own {
			pods = node.Pods
		}
		for _, other := range pods {
			check.Move(other, node, 1)
		}
	}
	if !own && len(check.hostile) == 0 {
		return nil, nil
	}
	return check, nil
}

func (a *affinityCheck) Move(other *model.Pod, node *model.Node, delta int) {
	d := int64(delta)
	theirs := a.cluster.Namespace(other.Namespace)
	if model.MatchesAll(a.pod.Affinity, other, theirs) {
		for i := range a.pod.Affinity {
			a.near.add(node, a.pod.Affinity[i].TopologyKey, d)
		}
	}
	for i := range a.pod.AntiAffinity {
		if term := &a.pod.AntiAffinity[i]; term.Matches(other, theirs) {
			a.apart.add(node, term.TopologyKey, d)
		}
	}
	for i := range other.AntiAffinity {
		if term := &other.AntiAffinity[i]; term.Matches(a.pod, a.cluster.Namespace(a.pod.Namespace)) {
			a.hostile.add(node, term.TopologyKey, d)
		}
	}
}

func (a *affinityCheck) Clone() Spanning {
	c := *a
	c.near, c.apart, c.hostile = maps.Clone(a.near), maps.Clone(a.apart), maps.Clone(a.hostile)
	return &c
}

func (a *affinityCheck) Check(node *model.Node) *Rejection {
	if !a.nearEnough(node) {
		return notNear
	}
	for i := range a.pod.AntiAffinity {
		key := a.pod.AntiAffinity[i].TopologyKey
		if value, found := node.Labels[key]; found && a.apart[domain{key, value}] > 0 {
			return notApart
		}
	}
	if a.hostile.sum(node) > 0 {
		return unwelcome
	}
	return nil
}

// nearEnough tells whether a node is in a domain of the wanted pods, for every term.
// When no such pod exists anywhere, a pod that would satisfy its own terms may be
// the first.
func (a *affinityCheck) nearEnough(node *model.Node) bool {
	found := true
	for i := range a.pod.Affinity {
		key := a.pod.Affinity[i].TopologyKey
		value, labelled := node.Labels[key]
		if !labelled {
			return false
		}
		found = found && a.near[domain{key, value}] > 0
	}
	if found {
		return true
	}
	return len(a.near) == 0 && model.MatchesAll(a.pod.Affinity, a.pod, a.cluster.Namespace(a.pod.Namespace))
}

func (podAffinity) Wakes(cluster *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded, NodeRemoved, SelfChanged, NamespaceChanged:
		return true
	case NodeChanged:
		return !maps.Equal(event.OldNode.Labels, event.Node.Labels)
	case PodPlaced:
		return wanted(cluster, pod, event.Pod)
	case PodGone:
		return matters(cluster, pod, event.OldPod)
	case PodChanged:
		return !maps.Equal(event.OldPod.Labels, event.Pod.Labels) &&
			(matters(cluster, pod, event.OldPod) || wanted(cluster, pod, event.Pod))
	default:
		return false
	}
}

// wanted tells whether a pod must be near another.
func wanted(cluster *model.Cluster, pod, other *model.Pod) bool {
	return model.MatchesAll(pod.Affinity, other, cluster.Namespace(other.Namespace))
}

// matters tells whether it might help a pod that another is no longer as it was: one
// of them had to be apart from the other, or the other was of the kind this one has
// to be near, and it may now be the first of that kind.
func matters(cluster *model.Cluster, pod, other *model.Pod) bool {
	return wanted(cluster, pod, other) ||
		model.MatchesAny(pod.AntiAffinity, other, cluster.Namespace(other.Namespace)) ||
		model.MatchesAny(other.AntiAffinity, pod, cluster.Namespace(pod.Namespace))
}

func (podAffinity) Score(cluster *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	wishes := len(pod.PreferredAffinity)+len(pod.PreferredAntiAffinity) > 0
	if !wishes && !cluster.HasAffinity() {
		return
	}
	liking := tally{}
	for _, node := range cluster.Nodes() {
		pods := node.WithAffinity
		if wishes {
			pods = node.Pods
		}
		for _, other := range pods {
			liking.addWishes(cluster, pod, other, node)
		}
	}
	if len(liking) == 0 {
		return
	}
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for i, node := range nodes {
		scores[i] = liking.sum(node)
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

// addWishes adds what two pods wish of each other, one waiting and one on a node. A
// pod whose required affinity the new one meets would like it near, if only a little.
func (t tally) addWishes(cluster *model.Cluster, pod, other *model.Pod, node *model.Node) {
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
