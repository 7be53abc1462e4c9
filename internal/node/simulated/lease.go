// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// A lease expires after 40 s, as a kubelet's lease does. It is renewed twice in that time instead of
// four times, because renewals are the whole idle load of a thousand nodes.
const (
	leaseDuration = 40 * time.Second
	renewInterval = leaseDuration / 2
)

// shortestTick is the shortest time between two renewals.
const shortestTick = 10 * time.Millisecond

// heartbeats renews the leases of all nodes, one after the other and evenly spread over the interval.
func (n *Nodes) heartbeats(ctx context.Context) {
	count := n.options.Count
	if count == 0 {
		return
	}
	due := make(chan int)
	var workers sync.WaitGroup
	for range concurrency(count, 4) {
		workers.Go(func() {
			for i := range due {
				n.heartbeat(ctx, i)
			}
		})
	}
	defer workers.Wait()
	defer close(due)

	tick := max(renewInterval/time.Duration(count), shortestTick)
	ticker := n.options.Clock.NewTicker(tick)
	defer ticker.Stop()
	began := n.options.Clock.Now()
	sent := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		// The number of renewals due since the start, also after missed ticks. After a long pause,
		// each lease is renewed once.
		target := int(n.options.Clock.Since(began) * time.Duration(count) / renewInterval)
		for sent = max(sent, target-count); sent < target; sent++ {
			select {
			case <-ctx.Done():
				return
			case due <- sent % count:
			}
		}
	}
}

// concurrency returns how many writes the nodes may have in flight, at least a number that is enough for a few nodes. Each real
// node writes for itself. With one write in flight for 20 nodes, every lease is renewed in time if a renewal takes a second.
func concurrency(nodes, least int) int { return max(least, nodes/20) }

// heartbeat renews a node's lease and repairs its status. A node that a user deletes is created again
// only at the next start, as by a kubelet.
func (n *Nodes) heartbeat(ctx context.Context, i int) {
	name := n.options.nodeName(i)
	if n.node(name) == nil {
		return
	}
	if err := n.beat(ctx, i); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot renew the lease of a simulated node, will retry", "node", name)
	}
	n.repair(ctx, name)
}

// beat renews or creates a lease. It saves a read by updating the lease that the last write returned.
func (n *Nodes) beat(ctx context.Context, i int) error {
	name := n.options.nodeName(i)
	leases := n.options.Client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	lease := n.lease(i)
	if lease == nil {
		created, err := leases.Create(ctx, n.renewed(name, &coordinationv1.Lease{}), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return n.keepLease(i, created, err)
		}
		if lease, err = leases.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	updated, err := n.options.UpdateLease(ctx, n.renewed(name, lease.DeepCopy()))
	return n.keepLease(i, updated, err)
}

// keepLease stores a lease for the next renewal. After an error the lease is read again, because another
// client may have changed it.
func (n *Nodes) keepLease(i int, lease *coordinationv1.Lease, err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases[i] = nil
	if err == nil {
		n.leases[i] = lease
	}
	return err
}

// renewed sets the fields of a lease. Its owner is the Node.
func (n *Nodes) renewed(name string, lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease.Name, lease.Namespace = name, v1.NamespaceNodeLease
	if node := n.node(name); node != nil {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}
	}
	seconds := int32(leaseDuration / time.Second)
	now := metav1.NewMicroTime(n.options.Clock.Now())
	lease.Spec.HolderIdentity = &name
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &now
	return lease
}
