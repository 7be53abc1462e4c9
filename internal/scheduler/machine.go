// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/plugin"
	"github.com/kindred-project/kindred/internal/scheduler/queue"
)

// machine decides which pod runs on which node. See the package documentation.
type machine struct {
	cluster *model.Cluster
	queue   *queue.Queue
	filters []plugin.Filter
	scores  []plugin.Weighted
	byName  map[string]plugin.Filter
	budgets func() []*policyv1.PodDisruptionBudget

	// binding holds the pods that were assigned to a node, until the watch shows the assignment.
	// The API's response is not enough: an older event may still arrive, in which the pod has no
	// node.
	binding map[types.UID]*binding
	// awaiting has the pods that wait for each claim, deadlines when they have waited for too long.
	awaiting  map[waitKey]map[types.UID]bool
	deadlines []deadline
	// incomplete has the gangs of which some, but too few, pods are on nodes.
	incomplete map[types.NamespacedName]bool
	// victims holds the pods being deleted to make room.
	victims map[types.UID]bool
	// reports holds decisions caused by a change.
	reports []decision

	// start is where the next search for nodes begins. turn selects among nodes with equal scores.
	start, turn int
	total, part []int64
}

// binding is a pending pod that has been assigned to a node.
type binding struct {
	item *queue.Item
	node string
	// reservation must take effect before the pod is bound; nil if there is none.
	reservation *model.Reservation
	// written is whether the API has the reservation, bound whether the pod is being bound.
	written, bound bool
}

// decision is the result of trying to place a pod.
type decision struct {
	pod *model.Pod
	// group is set instead of pod in a decision about a PodGroup.
	group *groupReport
	// node is the node of the pod. If it is empty, the pod fits on no node, for the given reason.
	node            string
	reason, message string
	// nominate is the nominated node; "" clears it, nil leaves it unchanged.
	nominate *string
	preempt  *preemption
	// reservation must be written, and take effect, before the pod is bound to the node. With
	// undo it failed, and what a lane has written only for the pod is removed.
	reservation *model.Reservation
	undo        bool
	// deallocate is a ResourceClaim whose allocation keeps the pod from all nodes.
	deallocate *resourcev1.ResourceClaim
	// event is a further event about the pod.
	event *podEvent
}

// podEvent is a normal event about a pod.
type podEvent struct{ reason, message string }

func newMachine(clock clock.PassiveClock, budgets func() []*policyv1.PodDisruptionBudget) *machine {
	m := &machine{
		cluster: model.NewCluster(),
		byName:  map[string]plugin.Filter{},
		budgets: budgets,
		binding: map[types.UID]*binding{},
		victims: map[types.UID]bool{},

		awaiting:   map[waitKey]map[types.UID]bool{},
		incomplete: map[types.NamespacedName]bool{},
	}
	m.queue = queue.New(clock, m.isGated)
	m.filters, m.scores = plugin.Rules(clock)
	for _, filter := range m.filters {
		m.byName[filter.Name()] = filter
	}
	return m
}

// wake requeues the parked pods that an event may make schedulable.
func (m *machine) wake(event plugin.Event) {
	m.queue.Wake(func(item *queue.Item) bool { return m.helps(&event, item) })
}

// helps reports whether an event may make a pod schedulable. If no filter rejected the pod, any
// event may.
func (m *machine) helps(event *plugin.Event, item *queue.Item) bool {
	for _, name := range item.RejectedBy {
		if m.byName[name].Wakes(m.cluster, event, item.Pod) {
			return true
		}
	}
	return len(item.RejectedBy) == 0
}

func (m *machine) setNode(node *v1.Node) {
	before := m.cluster.SetNode(node)
	switch {
	case before == nil:
		m.wake(plugin.Event{Kind: plugin.NodeAdded, Node: node})
	case nodeChangeMatters(before, node):
		m.wake(plugin.Event{Kind: plugin.NodeChanged, OldNode: before, Node: node})
		m.progressOn(node.Name)
	}
}

// nodeChangeMatters reports whether a change of a node matters for scheduling, unlike a
// heartbeat.
func nodeChangeMatters(before, after *v1.Node) bool {
	return before.Spec.Unschedulable != after.Spec.Unschedulable ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable)
}

func (m *machine) removeNode(name string) {
	node := m.cluster.Node(name)
	if node == nil {
		return
	}
	object := node.Node
	m.cluster.RemoveNode(name)
	m.wake(plugin.Event{Kind: plugin.NodeRemoved, OldNode: object})
	m.progressOn(name)
}

func (m *machine) setNamespace(name string, set labels.Set) {
	before := m.cluster.Namespace(name)
	m.cluster.SetNamespace(name, set)
	if !maps.Equal(before, set) {
		m.wake(plugin.Event{Kind: plugin.NamespaceChanged})
	}
}

// setPod adds or updates a pod.
func (m *machine) setPod(pod *model.Pod) {
	switch {
	case pod.IsTerminal():
		m.removePod(pod.UID)
		return
	case pod.IsAssigned():
		joined, before := m.cluster.Join(pod), m.cluster.NodeOf(pod.UID)
		m.setAssigned(pod)
		if joined || before != pod.Spec.NodeName {
			m.groupChanged(pod.Group, joined)
		}
	case pod.Spec.SchedulerName == v1.DefaultSchedulerName:
		joined := m.cluster.Join(pod)
		m.setWaiting(pod)
		m.groupChanged(pod.Group, joined)
	}
}

func (m *machine) setAssigned(pod *model.Pod) {
	m.queue.Remove(pod.UID)
	m.cluster.Nominate(pod, "")
	m.forget(pod.UID)
	node := pod.Spec.NodeName
	if was := m.cluster.NodeOf(pod.UID); was != "" && was != node {
		// Another client has bound it.
		m.unplace(pod.UID)
	}
	before := m.cluster.Place(pod, node)
	if before == nil {
		m.wake(plugin.Event{Kind: plugin.PodPlaced, Pod: pod})
		return
	}
	m.wake(plugin.Event{Kind: plugin.PodChanged, OldPod: before, Pod: pod, On: node})
}

// unplace removes a pod from its node, if it has one.
func (m *machine) unplace(uid types.UID) {
	node := m.cluster.NodeOf(uid)
	if pod := m.cluster.Remove(uid); pod != nil {
		m.wake(plugin.Event{Kind: plugin.PodGone, OldPod: pod, On: node})
	}
}

func (m *machine) setWaiting(pod *model.Pod) {
	if b, found := m.binding[pod.UID]; found {
		// It has a node already. If binding fails, the newest version is tried.
		b.item.Pod = pod
		m.wake(plugin.Event{Kind: plugin.PodChanged, OldPod: m.cluster.Place(pod, b.node), Pod: pod, On: b.node})
		return
	}
	if pod.DeletionTimestamp != nil {
		m.withdraw(pod.UID)
		return
	}
	item := m.queue.Get(pod.UID)
	if item == nil {
		m.cluster.Nominate(pod, pod.Status.NominatedNodeName)
		m.queue.Add(pod)
		return
	}
	before := item.Pod
	if before.Status.NominatedNodeName != pod.Status.NominatedNodeName {
		m.cluster.Nominate(pod, pod.Status.NominatedNodeName)
	}
	m.queue.Update(pod)
	if podChangeMatters(before, pod) && m.helps(&plugin.Event{Kind: plugin.SelfChanged, OldPod: before, Pod: pod}, item) {
		m.queue.WakeOne(pod.UID)
	}
}

// podChangeMatters reports whether a change of a pod matters for scheduling, unlike a change of its
// status, most of which are the scheduler's own.
func podChangeMatters(before, after *model.Pod) bool {
	if !resourceclaim.PodStatusEqual(before.Status.ResourceClaimStatuses, after.Status.ResourceClaimStatuses) {
		return true
	}
	return !maps.Equal(before.Labels, after.Labels) || !equality.Semantic.DeepEqual(&before.Spec, &after.Spec)
}

// withdraw removes a pod from the queue, and clears its nomination.
func (m *machine) withdraw(uid types.UID) {
	item := m.queue.Get(uid)
	if item == nil {
		return
	}
	m.queue.Remove(uid)
	if node := m.cluster.Nomination(uid); node != "" {
		m.cluster.Nominate(item.Pod, "")
		m.wake(plugin.Event{Kind: plugin.PodGone, OldPod: item.Pod, On: node})
	}
}

// removePod removes a pod that was deleted or has ended.
func (m *machine) removePod(uid types.UID) {
	m.withdraw(uid)
	m.forget(uid)
	delete(m.victims, uid)
	m.unplace(uid)
	m.groupChanged(m.cluster.Leave(uid), false)
}

// notBound handles a failed binding: the pod is removed from its node, and retried after its
// backoff.
func (m *machine) notBound(uid types.UID, err error) {
	b, found := m.binding[uid]
	if !found {
		return
	}
	m.forget(uid)
	m.unplace(uid)
	m.queue.Retry(b.item)
	m.countGroup(b.item.Pod.Group)
	none := ""
	m.reports = append(m.reports, decision{
		pod:         b.nominee(),
		reason:      v1.PodReasonSchedulerError,
		message:     err.Error(),
		nominate:    &none,
		reservation: b.reservation,
		undo:        b.reservation != nil,
	})
}

// notPreempted handles a preemption whose victims could not all be deleted: the preemptor is
// retried.
func (m *machine) notPreempted(preemptor types.UID, p *preemption) {
	for _, victim := range p.victims {
		delete(m.victims, victim.UID)
	}
	m.queue.WakeOne(preemptor)
}
