// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin holds the rules of scheduling: filters, which say where a pod
// cannot run, and scores, which say where it would better run. A rule is one file
// and one line in [Filters] or [Scores]. Their names, weights and reasons are those
// of kube-scheduler's default profile, for users and tools read them.
//
// A filter is asked twice. Once for a pod: it looks at the pod and the whole
// cluster and answers with a [Check], or with nil if it has nothing to say about
// this pod. Then the check is asked for one node after another. What a filter has
// worked out for a pod lives in its check and nowhere else.
//
// A filter also says which changes of the cluster could make a pod fit which it
// has rejected ([Filter.Wakes]); a pod it rejected is not tried again before.
package plugin

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// Filter says where a pod cannot run.
type Filter interface {
	Name() string
	// For prepares the check of one pod. Nil: nothing to check. A rejection: the pod
	// fits nowhere, whatever the node.
	For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection)
	// Wakes tells whether a change might let a pod in that this filter has rejected.
	Wakes(cluster *model.Cluster, event *Event, pod *model.Pod) bool
}

// Check judges nodes for one pod. It may be asked about a copy of a node, with
// other pods on it.
type Check interface {
	// Check is nil if the pod can run there.
	Check(node *model.Node) *Rejection
}

// A Narrower is a check which knows beforehand that only a few nodes can do.
type Narrower interface {
	Check
	// Nodes are the only nodes worth a look; nil means all.
	Nodes() sets.Set[string]
}

// A Spanning check judges a node by pods on other nodes too. So that one can ask
// "what if that pod were not there", it can be copied and told.
type Spanning interface {
	Check
	Clone() Spanning
	// Move says that a pod has come to a node (1) or has left it (-1).
	Move(pod *model.Pod, node *model.Node, delta int)
}

// CheckFunc is a check that is only a function.
type CheckFunc func(node *model.Node) *Rejection

// Check calls the function.
func (f CheckFunc) Check(node *model.Node) *Rejection { return f(node) }

// Rejection is why a pod cannot run on a node.
type Rejection struct {
	// Reasons are for people. A node may have several.
	Reasons []string
	// Final means that removing pods from the node would not help.
	Final bool
}

func because(reason string) *Rejection { return &Rejection{Reasons: []string{reason}} }

func finally(reason string) *Rejection { return &Rejection{Reasons: []string{reason}, Final: true} }

// MaxScore is the best score a node can have; the worst is 0.
const MaxScore = 100

// Score says where a pod would better run.
type Score interface {
	Name() string
	// Score sets scores[i] for nodes[i], between 0 and MaxScore. All are 0 when it is
	// called; a score that has nothing to say about a pod leaves them so.
	Score(cluster *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64)
}

// Weighted is a score and how much it counts.
type Weighted struct {
	Score
	Weight int64
}

// Filters are the filters, in the order in which they are asked. The first to
// reject a node gives the reason, so the cheap and the final ones come first.
//
// There is none for spec.nodeName: a pod that comes with a node has been scheduled,
// and never gets here.
func Filters() []Filter {
	return []Filter{
		devices{},
		nodeUnschedulable{},
		taints{},
		nodeAffinity{},
		hostPorts{},
		resourcesFit{},
		topologySpread{},
		podAffinity{},
	}
}

// Scores are the scores with their weights.
func Scores() []Weighted {
	return []Weighted{
		{taints{}, 3},
		{nodeAffinity{}, 2},
		{leastAllocated{}, 1},
		{topologySpread{}, 2},
		{podAffinity{}, 2},
		{balancedAllocation{}, 1},
		{imageLocality{}, 1},
	}
}

// Kind is what kind of change an event is.
type Kind int

// The changes that can let a waiting pod in.
const (
	NodeAdded Kind = iota
	NodeChanged
	NodeRemoved
	// PodPlaced: a pod is on a node which was not.
	PodPlaced
	// PodChanged: a pod on a node has changed.
	PodChanged
	// PodGone: a pod has left its node, or no longer wants the room made for it.
	PodGone
	// SelfChanged: the waiting pod itself has changed.
	SelfChanged
	// NamespaceChanged: the labels of a namespace have changed.
	NamespaceChanged
)

// Event is a change of the cluster, which has already been made. Which fields are
// set depends on its kind.
type Event struct {
	Kind          Kind
	OldNode, Node *v1.Node
	OldPod, Pod   *model.Pod
	// On is the node of a pod that has changed or gone.
	On string
}

// normalize stretches scores so that the best is MaxScore. With reverse, few is
// better than many.
func normalize(scores []int64, reverse bool) {
	var most int64
	for _, s := range scores {
		most = max(most, s)
	}
	for i, s := range scores {
		if most > 0 {
			s = MaxScore * s / most
		}
		if reverse {
			s = MaxScore - s
		}
		scores[i] = s
	}
}
