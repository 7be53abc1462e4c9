// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// KeepPodRoutes keeps the routes to the pods of all nodes that share a link with this machine, which is a server without pods of its
// own, until ctx is done: the API server connects to webhooks and API servers in pods. bridge is the name that the bridge of its pods
// would have, and nodes with the label simulated send no packets.
func KeepPodRoutes(ctx context.Context, nodes coreinformers.NodeInformer, bridge, simulated string, c clock.WithTicker) error {
	routes, failures := newPodRoutes(bridge), unmended{}
	ticker := c.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		all, _ := nodes.Lister().List(labels.Everything()) // from the cache
		routes.set(reachable(podsOf(all, func(node *v1.Node) bool { return !hasLabel(node, simulated) })))
		restored, err := routes.ensure()
		failures.log("the routes to pods", err)
		if restored {
			klog.FromContext(ctx).V(2).Info("Added routes to the pods of nodes")
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}
