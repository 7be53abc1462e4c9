// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// topologySpread spreads matching pods over hosts, zones or other topology domains (KEP-895).
// DoNotSchedule constraints are a filter, ScheduleAnyway constraints a score.
//
// A pod without constraints that has a controller gets the default constraints: away from the
// controller's other pods, by host and by zone.
type topologySpread struct{}

func (topologySpread) Name() string { return "PodTopologySpread" }

var (
	skewed       = reject("node(s) didn't match pod topology spread constraints")
	labelMissing = rejectUnresolvable("node(s) didn't match pod topology spread constraints (missing required label)")
)

// constraint is one spread constraint of a pod.
type constraint struct {
	key        string
	maxSkew    int
	minDomains int
	// Whether only nodes count that the pod's node affinity matches, or whose taints it tolerates
	// (KEP-3094).
	honorAffinity bool
	honorTaints   bool
	// matches reports whether a pod is counted. count returns how many such pods, without those
	// that are being deleted, are on a node.
	matches func(pod *model.Pod) bool
	count   func(node *model.Node) int
}

// constraintsOf returns the constraints of a pod with this whenUnsatisfiable action.
func constraintsOf(pod *model.Pod, action v1.UnsatisfiableConstraintAction) []constraint {
	var list []constraint
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != action {
			continue
		}
		parsed := constraint{
			key:           c.TopologyKey,
			maxSkew:       int(c.MaxSkew),
			minDomains:    int(ptr.Deref(c.MinDomains, 1)),
			honorAffinity: ptr.Deref(c.NodeAffinityPolicy, v1.NodeInclusionPolicyHonor) == v1.NodeInclusionPolicyHonor,
			honorTaints:   ptr.Deref(c.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore) == v1.NodeInclusionPolicyHonor,
		}
		parsed.selectPods(pod, c)
		list = append(list, parsed)
	}
	return list
}

// selectPods sets which pods a constraint counts: pods in the same namespace that the selector matches
// and that have the same values of matchLabelKeys.
func (c *constraint) selectPods(pod *model.Pod, spec *v1.TopologySpreadConstraint) {
	selector := model.Selector(spec.LabelSelector)
	same := labels.Set{}
	for _, key := range spec.MatchLabelKeys {
		if value, found := pod.Labels[key]; found {
			same[key] = value
		}
	}
	if requirements, selectable := selector.Requirements(); selectable && len(same) > 0 {
		selector = same.AsSelectorPreValidated().Add(requirements...)
	}
	c.matches = func(other *model.Pod) bool {
		return other.Namespace == pod.Namespace && selector.Matches(labels.Set(other.Labels))
	}
	c.count = func(node *model.Node) int {
		// An empty selector selects every pod, but counts none.
		if selector.Empty() {
			return 0
		}
		n := 0
		for _, other := range node.Pods {
			if other.DeletionTimestamp == nil && c.matches(other) {
				n++
			}
		}
		return n
	}
}

// byOwner returns the default constraints of a pod without constraints.
func byOwner(pod *model.Pod) []constraint {
	if pod.Owner == "" {
		return nil
	}
	count := func(node *model.Node) int { return node.Owned(pod.Owner) }
	return []constraint{
		{key: v1.LabelHostname, maxSkew: 3, honorAffinity: true, count: count},
		{key: v1.LabelTopologyZone, maxSkew: 5, honorAffinity: true, count: count},
	}
}

// includes reports whether a constraint counts a node.
func (c *constraint) includes(pod *model.Pod, required nodeaffinity.RequiredNodeAffinity, node *model.Node) bool {
	if c.honorAffinity {
		if match, _ := required.Match(node.Node); !match {
			return false
		}
	}
	return !c.honorTaints || !isRepelled(node.Spec.Taints, pod.Spec.Tolerations)
}

// hasKeys reports whether a node has the topology key of every constraint.
func hasKeys(nodeLabels map[string]string, constraints []constraint) bool {
	return !slices.ContainsFunc(constraints, func(c constraint) bool {
		_, found := nodeLabels[c.key]
		return !found
	})
}

// spreadCheck counts the matching pods in each domain of each constraint.
type spreadCheck struct {
	pod         *model.Pod
	required    nodeaffinity.RequiredNodeAffinity
	constraints []constraint
	counts      []map[string]int
	// least is the lowest count of each constraint; -1 if it must be recomputed.
	least []int
}

func (topologySpread) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	constraints := constraintsOf(pod, v1.DoNotSchedule)
	if len(constraints) == 0 {
		return nil, nil
	}
	check := &spreadCheck{
		pod:         pod,
		required:    nodeaffinity.GetRequiredNodeAffinity(pod.Pod),
		constraints: constraints,
		least:       make([]int, len(constraints)),
	}
	for i := range constraints {
		check.counts = append(check.counts, map[string]int{})
		check.least[i] = -1
	}
	for _, node := range cluster.Nodes() {
		check.count(node)
	}
	return check, nil
}

func (s *spreadCheck) count(node *model.Node) {
	if !hasKeys(node.Labels, s.constraints) {
		return
	}
	for i := range s.constraints {
		c := &s.constraints[i]
		if c.includes(s.pod, s.required, node) {
			s.counts[i][node.Labels[c.key]] += c.count(node)
		}
	}
}

func (s *spreadCheck) Check(node *model.Node) *Rejection {
	for i := range s.constraints {
		c := &s.constraints[i]
		domain, found := node.Labels[c.key]
		if !found {
			return labelMissing
		}
		skew := s.counts[i][domain] - s.minimum(i)
		if c.matches(s.pod) {
			skew++
		}
		if skew > c.maxSkew {
			return skewed
		}
	}
	return nil
}

// minimum returns the lowest count of a constraint's domains. It is 0 if there are fewer domains
// than minDomains.
func (s *spreadCheck) minimum(i int) int {
	if len(s.counts[i]) < s.constraints[i].minDomains {
		return 0
	}
	if s.least[i] < 0 {
		s.least[i] = math.MaxInt32
		for _, n := range s.counts[i] {
			s.least[i] = min(s.least[i], n)
		}
	}
	return s.least[i]
}

func (s *spreadCheck) Clone() Spanning {
	c := *s
	c.counts = slices.Clone(s.counts)
	for i := range c.counts {
		c.counts[i] = maps.Clone(c.counts[i])
	}
	c.least = slices.Clone(s.least)
	return &c
}

func (s *spreadCheck) Move(pod *model.Pod, node *model.Node, delta int) {
	if pod.DeletionTimestamp != nil || !hasKeys(node.Labels, s.constraints) {
		return
	}
	for i := range s.constraints {
		c := &s.constraints[i]
		if c.matches(pod) && c.includes(s.pod, s.required, node) {
			s.counts[i][node.Labels[c.key]] += delta
			s.least[i] = -1
		}
	}
}

func (topologySpread) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	constraints := constraintsOf(pod, v1.DoNotSchedule)
	counts := func(other *model.Pod) bool {
		return slices.ContainsFunc(constraints, func(c constraint) bool { return c.matches(other) })
	}
	switch event.Kind {
	case PodPlaced:
		return counts(event.Pod)
	case PodGone:
		return counts(event.OldPod)
	case PodChanged:
		return counts(event.Pod) != counts(event.OldPod) || (event.Pod.DeletionTimestamp != nil && counts(event.Pod))
	case NodeAdded:
		return hasKeys(event.Node.Labels, constraints)
	case NodeRemoved:
		return hasKeys(event.OldNode.Labels, constraints)
	case NodeChanged:
		return !maps.Equal(event.OldNode.Labels, event.Node.Labels) ||
			!slices.Equal(event.OldNode.Spec.Taints, event.Node.Spec.Taints)
	case SelfChanged:
		return true
	default:
		return false
	}
}

func (topologySpread) Score(cluster *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	constraints := constraintsOf(pod, v1.ScheduleAnyway)
	// Nodes without a topology key of the pod's constraints get no score. For the default
	// constraints, a node may have no zone.
	strict := true
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		constraints, strict = byOwner(pod), false
	}
	if len(constraints) == 0 {
		return
	}
	outside := func(node *model.Node) bool { return strict && !hasKeys(node.Labels, constraints) }
	total := make([]float64, len(nodes))
	for i := range constraints {
		spreadCost(cluster, pod, &constraints[i], nodes, outside, total)
	}
	fewestIsBest(nodes, outside, total, scores)
}

// spreadCost adds to each node's total the number of matching pods in its domain of a constraint.
// It is weighted by the number of domains, because many domains have few pods each; with a larger
// maxSkew nodes differ less.
func spreadCost(cluster *model.Cluster, pod *model.Pod, c *constraint, nodes []*model.Node, outside func(*model.Node) bool, total []float64) {
	if c.key == v1.LabelHostname {
		spreadByHost(c, nodes, outside, total)
		return
	}
	domains := map[string]int{}
	for _, node := range nodes {
		if domain, found := node.Labels[c.key]; found && !outside(node) {
			domains[domain] = 0
		}
	}
	c.countDomains(cluster, pod, outside, domains)
	weight := domainWeight(len(domains))
	for i, node := range nodes {
		if domain, found := node.Labels[c.key]; found && !outside(node) {
			total[i] += c.cost(domains[domain], weight)
		}
	}
}

// spreadByHost is spreadCost for a constraint in which each node is a domain.
func spreadByHost(c *constraint, nodes []*model.Node, outside func(*model.Node) bool, total []float64) {
	candidates := 0
	for _, node := range nodes {
		if !outside(node) {
			candidates++
		}
	}
	weight := domainWeight(candidates)
	for i, node := range nodes {
		if _, found := node.Labels[c.key]; found && !outside(node) {
			total[i] += c.cost(c.count(node), weight)
		}
	}
}

func domainWeight(domains int) float64 { return math.Log(float64(domains + 2)) }

func (c *constraint) cost(pods int, weight float64) float64 {
	return float64(pods)*weight + float64(c.maxSkew-1)
}

// countDomains counts matching pods on all nodes, in the domains of the candidates.
func (c *constraint) countDomains(cluster *model.Cluster, pod *model.Pod, outside func(*model.Node) bool, domains map[string]int) {
	if len(domains) == 0 {
		return
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	for _, node := range cluster.Nodes() {
		domain := node.Labels[c.key]
		if _, candidate := domains[domain]; !candidate || outside(node) || !c.includes(pod, required, node) {
			continue
		}
		domains[domain] += c.count(node)
	}
}

// fewestIsBest converts totals to scores: the lowest total gets the highest score, and nodes
// outside get 0.
func fewestIsBest(nodes []*model.Node, outside func(*model.Node) bool, total []float64, scores []int64) {
	least, most := int64(math.MaxInt64), int64(0)
	for i, node := range nodes {
		if outside(node) {
			continue
		}
		scores[i] = int64(math.Round(total[i]))
		least, most = min(least, scores[i]), max(most, scores[i])
	}
	for i, node := range nodes {
		switch {
		case outside(node):
		case most == 0:
			scores[i] = MaxScore
		default:
			scores[i] = MaxScore * (most + least - scores[i]) / most
		}
	}
}
