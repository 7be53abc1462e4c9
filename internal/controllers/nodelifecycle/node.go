// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"context"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/node/topology"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// monitorPeriod is the interval at which a node that is not ready is checked without an event (upstream's
// --node-monitor-period), since its zone may have changed.
const monitorPeriod = 5 * time.Second

// nodeReconciler keeps the status, taints and labels of nodes.
type nodeReconciler struct {
	control.Env
	taints limiter

	mu    sync.Mutex
	known map[string]knownNode
	// census counts all nodes, as the last reconcile left them. It is nil until the first node that is not ready.
	census *census
}

// knownNode is the state of a node between reconciles. It is not persistent: after a restart, each
// node has a full grace period.
type knownNode struct {
	uid types.UID
	health
}

// Reconcile brings one node's status and taints up to date.
func (r *nodeReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cached := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, cached); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	lease, err := r.lease(ctx, r.Client, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	node := cached.DeepCopy()
	now := r.Clock.Now()
	seen := r.observe(node, lease, now)
	deadline := seen.deadline(node)
	if !now.Before(deadline) {
		alive, err := r.hasRenewed(ctx, node, seen, now)
		if err != nil {
			return ctrl.Result{}, err
		}
		if alive {
			return ctrl.Result{RequeueAfter: monitorPeriod}, nil
		}
		if err := r.markLost(ctx, node, now); err != nil {
			return ctrl.Result{}, owned.IgnoreStale(err)
		}
	}
	if err := r.updateTaintsAndLabels(ctx, node, now); err != nil {
		return ctrl.Result{}, owned.IgnoreStale(err)
	}
	if readiness(node) != corev1.ConditionTrue || !now.Before(deadline) {
		return ctrl.Result{RequeueAfter: monitorPeriod}, nil
	}
	return ctrl.Result{RequeueAfter: deadline.Sub(now)}, nil
}

// lease returns the node's Lease, or nil.
func (r *nodeReconciler) lease(ctx context.Context, reader client.Reader, name string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: name}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// observe records the heartbeats of a node.
func (r *nodeReconciler) observe(node *corev1.Node, lease *coordinationv1.Lease, now time.Time) health {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.known[node.Name]
	if known.uid != node.UID {
		known = knownNode{uid: node.UID}
		r.nodeEvent(node.Name, node.UID, "RegisteredNode", "Registered Node "+node.Name+" in Controller")
	}
	known.health = known.observe(node, lease, now)
	if r.known == nil {
		r.known = map[string]knownNode{}
	}
	r.known[node.Name] = known
	return known.health
}

func (r *nodeReconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.known[name]; ok {
		delete(r.known, name)
		if r.census != nil {
			r.census.remove(name)
		}
		r.nodeEvent(name, known.uid, "RemovingNode", "Removing Node "+name+" from Controller")
	}
}

func (r *nodeReconciler) nodeEvent(name string, uid types.UID, reason, message string) {
	r.Events.Eventf(nodeReference(name, uid), corev1.EventTypeNormal, reason, "Node %s event: %s", name, message)
}

func nodeReference(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// hasRenewed reports whether the node's Lease in the API is newer than in the cache. If so, the node
// is not lost.
func (r *nodeReconciler) hasRenewed(ctx context.Context, node *corev1.Node, before health, now time.Time) (alive bool, err error) {
	if readiness(node) == corev1.ConditionUnknown {
		return false, nil // already lost
	}
	live, err := r.lease(ctx, r.Live, node.Name)
	if err != nil {
		return false, err
	}
	return r.observe(node, live, now) != before, nil
}

// markLost sets the node's conditions to Unknown, in the API and in node.
func (r *nodeReconciler) markLost(ctx context.Context, node *corev1.Node, now time.Time) error {
	conditions := unknownConditions(node, now)
	if apiequality.Semantic.DeepEqual(conditions, node.Status.Conditions) {
		return nil
	}
	wasReady := readiness(node) == corev1.ConditionTrue
	node.Status.Conditions = conditions
	if err := r.Client.Status().Update(ctx, node); err != nil {
		return err
	}
	if wasReady {
		r.Events.Eventf(nodeReference(node.Name, node.UID), corev1.EventTypeNormal, "NodeNotReady",
			"Node %s status is now: %s", node.Name, "NodeNotReady")
	}
	return nil
}

// updateTaintsAndLabels updates the node's taints and labels from its conditions.
func (r *nodeReconciler) updateTaintsAndLabels(ctx context.Context, node *corev1.Node, now time.Time) error {
	evictions, rate, err := r.disruption(ctx, node)
	if err != nil {
		return err
	}
	evict := noExecute(node, evictions, func() bool {
		return r.taints.allow(topology.GetZoneKey(node), rate, now)
	})
	taints := retaint(node.Spec.Taints, noSchedule(node), evict, now)
	labels := missingLabels(node)
	if apiequality.Semantic.DeepEqual(taints, node.Spec.Taints) && len(labels) == 0 {
		return nil
	}
	before := node.DeepCopy()
	node.Spec.Taints = taints
	if len(labels) > 0 {
		node.Labels = maps.Clone(node.Labels)
		maps.Copy(node.Labels, labels)
	}
	// A merge patch replaces the whole list of taints, which other clients write as well.
	return r.Client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// disruption reports whether pods may be evicted from lost nodes, and at which rate in the zone of
// the node.
func (r *nodeReconciler) disruption(ctx context.Context, node *corev1.Node) (evictions bool, rate float64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch readiness(node) {
	case corev1.ConditionTrue, "":
		if r.census != nil {
			r.census.set(node)
		}
		return true, 0, nil // not asked for
	}
	if r.census == nil {
		if r.census, err = r.count(ctx); err != nil {
			return false, 0, err
		}
	}
	r.census.set(node) // the cache may not have the latest write
	return r.census.ready > 0, r.census.zones[topology.GetZoneKey(node)].rate(), nil
}

// count counts the nodes of the cache.
func (r *nodeReconciler) count(ctx context.Context) (*census, error) {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	c := newCensus()
	for i := range nodes.Items {
		c.set(&nodes.Items[i])
	}
	return c, nil
}
