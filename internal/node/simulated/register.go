// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// The pauses between attempts to register a node while the API is not available.
const (
	registerRetryFirst = 100 * time.Millisecond
	registerRetryMax   = 7 * time.Second // as in the kubelet
)

// register creates all nodes and their leases, or takes over existing ones.
func (n *Nodes) register(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(n.options.Workers)
	for i := range n.options.Count {
		group.Go(func() error { return n.registerNode(ctx, i) })
	}
	return group.Wait()
}

// registerNode retries until it succeeds or ctx ends.
func (n *Nodes) registerNode(ctx context.Context, i int) error {
	for pause := registerRetryFirst; ; pause = min(2*pause, registerRetryMax) {
		err := n.tryRegister(ctx, i)
		if err == nil {
			return nil
		}
		klog.FromContext(ctx).V(2).Info("Cannot register simulated node, will retry", "node", n.options.nodeName(i), "err", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("registering simulated node %s: %w", n.options.nodeName(i), err)
		case <-n.options.Clock.After(pause):
		}
	}
}

func (n *Nodes) tryRegister(ctx context.Context, i int) error {
	want := n.options.newNode(i)
	nodes := n.options.Client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = n.adopt(ctx, want)
	}
	if err != nil {
		return err
	}
	n.remember(i, node)
	return n.beat(ctx, i)
}

// adopt takes over a node of an earlier process.
func (n *Nodes) adopt(ctx context.Context, want *v1.Node) (*v1.Node, error) {
	nodes := n.options.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if _, simulated := node.Labels[Key]; !simulated {
		return nil, fmt.Errorf("node %s exists and is not a simulated one; choose another name prefix", node.Name)
	}
	if updated := n.options.adopted(node, want); updated != nil {
		if node, err = nodes.Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
	}
	return nodes.UpdateStatus(ctx, refreshed(node, want.Status), metav1.UpdateOptions{})
}

// repair writes the status of a node that is not healthy in the API.
func (n *Nodes) repair(ctx context.Context, name string) {
	n.mu.Lock()
	i, known := n.index[name]
	node := n.nodes[name]
	n.mu.Unlock()
	if !known || node == nil || isHealthy(node) {
		return
	}
	status := n.options.nodeStatus(i)
	_, err := n.options.Client.CoreV1().Nodes().UpdateStatus(ctx, refreshed(node, status), metav1.UpdateOptions{})
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		// The next heartbeat retries.
		klog.FromContext(ctx).Error(err, "Cannot write the status of a simulated node, will retry", "node", name)
	}
}
