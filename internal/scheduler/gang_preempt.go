// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/queue"
)

// groupPreemption is the result of preemption for a group that does not fit.
type groupPreemption struct {
	text string
	// nominate has the nodes of the group's pods, while the group waits for victims; nil if it does
	// not.
	nominate map[types.UID]string
	victims  []*model.Pod
	// kept has the pods on nodes, if it turns out that they fit without victims: the first attempt
	// placed the pods otherwise.
	kept *trial
}

// wholeCluster stands for the node in events: a group preempts pods on all nodes.
const wholeCluster = "cluster"

// preemptForGroup finds the pods whose removal makes room for a group. It removes all less important
// pods of the cluster, places the group, and then puts back each victim with which the group still
// fits: first those that disruption budgets protect, and in each set the more important ones first.
func (m *machine) preemptForGroup(group *model.Group, members []*queue.Item, q quorum) groupPreemption {
	if preemptionPolicy(members[0].Pod) == v1.PreemptNever {
		return groupPreemption{text: "not eligible due to preemptionPolicy=Never."}
	}
	if nominated := m.awaitedBy(group, members); nominated != nil {
		return groupPreemption{text: "ongoing preemption on nominated nodes", nominate: nominated}
	}
	lower := m.victimsOn(m.cluster.Nodes(), group.Priority())
	if len(lower) == 0 {
		return groupPreemption{text: "No preemption victims found for incoming preemptor"}
	}
	removed := removal{cluster: m.cluster, from: map[types.UID]string{}}
	for _, v := range lower {
		removed.remove(v)
	}
	t := &trial{machine: m}
	result, placements := t.run(members, q), t.placed
	t.undo()
	if result.outcome != scheduled {
		removed.restoreAll(lower)
		return groupPreemption{text: result.message()}
	}
	victims := m.chooseVictims(lower, &removed, placements)
	p := groupPreemption{text: fmt.Sprintf("found a placement for podgroup, preempting %d victims", len(podsOf(victims)))}
	if len(victims) == 0 {
		p.kept = &trial{machine: m}
		p.kept.repeat(placements)
		return p
	}
	removed.restoreAll(victims)
	p.victims, p.nominate = podsOf(victims), map[types.UID]string{}
	for _, placed := range placements {
		p.nominate[placed.pod.UID] = placed.node
	}
	return p
}

// chooseVictims restores all victims with which the placements still fit, and returns the others.
func (m *machine) chooseVictims(lower []victim, removed *removal, placements []placement) []victim {
	slices.SortFunc(lower, compareImportance)
	protected, others := split(lower, m.budgets())
	var candidates, victims []victim
	for _, v := range protected {
		candidates = append(candidates, v.victim)
	}
	candidates = append(candidates, others...)
	for _, v := range candidates {
		removed.restore(v)
		t := &trial{machine: m}
		if !t.repeat(placements) {
			removed.remove(v)
			victims = append(victims, v)
		}
		t.undo()
	}
	return victims
}

// awaitedBy returns the nominated nodes of a group's pods if victims are still terminating on one of
// them; else nil.
func (m *machine) awaitedBy(group *model.Group, members []*queue.Item) map[types.UID]string {
	nominated, awaits := map[types.UID]string{}, false
	for _, item := range members {
		name := m.cluster.Nomination(item.Pod.UID)
		nominated[item.Pod.UID] = name
		if node := m.cluster.Node(name); node != nil {
			awaits = awaits || slices.ContainsFunc(node.Pods, func(pod *model.Pod) bool {
				return m.cluster.PriorityOf(pod) < group.Priority() && (m.victims[pod.UID] || preempted(pod))
			})
		}
	}
	if !awaits {
		return nil
	}
	return nominated
}

// removal removes victims from the cluster for a time.
type removal struct {
	cluster *model.Cluster
	from    map[types.UID]string
}

func (r *removal) remove(v victim) {
	for _, pod := range v.pods {
		r.from[pod.UID] = r.cluster.NodeOf(pod.UID)
		r.cluster.Remove(pod.UID)
	}
}

func (r *removal) restore(v victim) {
	for _, pod := range v.pods {
		r.cluster.Place(pod, r.from[pod.UID])
	}
}

func (r *removal) restoreAll(victims []victim) {
	for _, v := range victims {
		r.restore(v)
	}
}
