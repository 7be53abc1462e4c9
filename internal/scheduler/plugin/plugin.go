// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin has the rules of scheduling: filters, which exclude nodes, and scores, which rank
// them. A rule is one file and one line in [Rules]. Names, weights and reasons are
// the same as in kube-scheduler's default profile, because users and tools read them.
//
// A filter runs in two steps. For each pod it looks at the pod and the whole cluster and returns a
// [Check], or nil if it does not apply to the pod. Then the check is called for each node. What a
// filter has computed for a pod is stored only in its check.
//
// A filter also reports which changes of the cluster may make a rejected pod schedulable
// ([Filter.Wakes]). The pod is not tried again before such a change.
package plugin

import (
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// Filter excludes nodes for a pod.
type Filter interface {
	Name() string
	// For returns the check of a pod; nil if the filter does not apply. A rejection means that the
	// pod fits on no node.
	For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection)
	// Wakes reports whether a change may make a pod schedulable that this filter has rejected.
	Wakes(cluster *model.Cluster, event *Event, pod *model.Pod) bool
}

// Check checks nodes for one pod. The node may be a copy with other pods on it.
type Check interface {
	// Check returns nil if the pod can run on the node.
	Check(node *model.Node) *Rejection
}

// A Narrower is a check that can list the few possible nodes, so that the others need not be checked.
type Narrower interface {
	Check
	// Nodes returns the possible nodes; nil means all.
	Nodes() sets.Set[string]
}

// A Spanning check depends on pods on other nodes too. Preemption clones it, and removes and adds
// pods.
type Spanning interface {
	Check
	Clone() Spanning
	// Move updates the check for a pod that is added to a node (1) or removed from it (-1).
	Move(pod *model.Pod, node *model.Node, delta int)
}

// A Deallocator is a check that an allocation may prevent from accepting a node.
type Deallocator interface {
	Check
	// Unavailable returns a ResourceClaim whose allocation should be removed, or nil. It has no other
	// user than the given one, which is the pod or its PodGroup.
	Unavailable(user types.UID) *resourcev1.ResourceClaim
}

// A Reserver is a check of something that must be written to the API before the pod is bound.
type Reserver interface {
	Check
	// Reserve adds what must be written for the pod to run on a node that passed the check.
	Reserve(node *model.Node, reservation *model.Reservation)
}

// CheckFunc is a function that implements Check.
type CheckFunc func(node *model.Node) *Rejection

// Check calls the function.
func (f CheckFunc) Check(node *model.Node) *Rejection { return f(node) }

// Rejection is why a pod cannot run on a node.
type Rejection struct {
	// Reasons are for users.
	Reasons []string
	// Unresolvable means that preemption would not help, because the pod would not fit on the node
	// even if it were empty (upstream: UnschedulableAndUnresolvable).
	Unresolvable bool
	// Failure is an error that ends the attempt: no other node is tried, and the pod is retried
	// after its backoff.
	Failure error
}

func reject(reason string) *Rejection { return &Rejection{Reasons: []string{reason}} }

func rejectUnresolvable(reason string) *Rejection {
	return &Rejection{Reasons: []string{reason}, Unresolvable: true}
}

func failure(err error) *Rejection {
	return &Rejection{Reasons: []string{err.Error()}, Unresolvable: true, Failure: err}
}

// MaxScore is the highest score of a node; the lowest is 0.
const MaxScore = 100

// Score ranks nodes for a pod.
type Score interface {
	Name() string
	// Score sets scores[i] for nodes[i], between 0 and MaxScore. All are 0 when it is called, and
	// stay so if the score does not apply to the pod.
	Score(cluster *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64)
}

// A Selective score applies to few pods, and is not called for the others.
type Selective interface {
	Score
	Applies(cluster *model.Cluster, pod *model.Pod) bool
}

// Weighted is a score with its weight.
type Weighted struct {
	Score
	Weight int64
}

// Rules returns the filters, in order, and the scores with their weights. The first filter to reject a
// node gives the reason, so the cheap and the unresolvable ones are first.
//
// There is no filter for spec.nodeName: a pod with a node is scheduled already.
func Rules(clock clock.PassiveClock) ([]Filter, []Weighted) {
	devices := newDevices(clock)
	filters := []Filter{
		nodeUnschedulable{},
		taints{},
		nodeAffinity{},
		hostPorts{},
		resourcesFit{},
		volumeRestrictions{},
		volumeLimits{},
		volumeBinding{},
		volumeZone{},
		topologySpread{},
		podAffinity{},
		nodeFeatures{},
		devices,
	}
	scores := []Weighted{
		{taints{}, 3},
		{nodeAffinity{}, 2},
		{leastAllocated{}, 1},
		{volumeBinding{}, 1},
		{topologySpread{}, 2},
		{podAffinity{}, 2},
		{devices, 2},
		{balancedAllocation{}, 1},
		{imageLocality{}, 1},
	}
	return filters, scores
}

// Kind is the kind of an event.
type Kind int

// The changes that can make a pending pod schedulable.
const (
	NodeAdded Kind = iota
	NodeChanged
	NodeRemoved
	// PodPlaced: a pod was placed on a node.
	PodPlaced
	// PodChanged: a pod on a node has changed.
	PodChanged
	// PodGone: a pod was removed from its node, or lost its nomination.
	PodGone
	// SelfChanged: the pending pod itself has changed.
	SelfChanged
	// NamespaceChanged: the labels of a namespace have changed.
	NamespaceChanged
	// ClaimChanged: a PersistentVolumeClaim was added or changed, or is no longer assumed.
	ClaimChanged
	// VolumeChanged: a PersistentVolume was added or changed, or is no longer assumed.
	VolumeChanged
	// ClassChanged: a StorageClass was added or changed.
	ClassChanged
	// CSINodeChanged: a CSINode was added, changed or removed.
	CSINodeChanged
	// DriverChanged: a CSIDriver was added, changed or removed.
	DriverChanged
	// CapacityChanged: a CSIStorageCapacity was added or changed.
	CapacityChanged
	// AttachmentGone: a VolumeAttachment was removed.
	AttachmentGone
	// ResourceClaimChanged: a ResourceClaim was added, changed or removed.
	ResourceClaimChanged
	// DeviceClassChanged: a DeviceClass was added or changed.
	DeviceClassChanged
	// SliceChanged: a ResourceSlice was added or changed, or other devices are tainted.
	SliceChanged
)

// Event is a change that was applied to the cluster. Which fields are set depends on its kind.
type Event struct {
	Kind          Kind
	OldNode, Node *v1.Node
	OldPod, Pod   *model.Pod
	// On is the node of a pod that was changed or removed.
	On string
	// OldObject and Object are the states of an object of another kind; nil if it did not exist.
	OldObject, Object any
}

// states returns the states of the object that an event is about, of the type of its kind.
func states[T any](event *Event) (before, after T) {
	before, _ = event.OldObject.(T)
	after, _ = event.Object.(T)
	return before, after
}

// normalize scales scores so that the best is MaxScore. With reverse, low is better than high.
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
