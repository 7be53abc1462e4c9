// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// endpointAnnotation says where the DNS server of a node listens, if the node may not publish it itself: the credentials of
// a machine that has joined allow it to change its own Node and no EndpointSlice.
const endpointAnnotation = "kindred.dev/dns"

// Announce keeps the address of a node's server in an annotation of the Node until ctx is done, for RunNodes.
func Announce(ctx context.Context, client kubernetes.Interface, nodes coreinformers.NodeInformer, node string, endpoint netip.AddrPort, c clock.WithTicker) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{endpointAnnotation: endpoint.String()}}})
	if err != nil {
		return err
	}
	ticker := c.NewTicker(republish)
	defer ticker.Stop()
	for {
		known, err := nodes.Lister().Get(node)
		if err != nil || known.Annotations[endpointAnnotation] != endpoint.String() {
			_, err = client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot announce the DNS server of this node, will retry")
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

// RunNodes publishes the servers that nodes announce until ctx is done. clusterIP is the address of the Service.
func (p *Publisher) RunNodes(ctx context.Context, nodes coreinformers.NodeInformer, clusterIP netip.Addr) error {
	changed := make(chan struct{}, 1)
	registration, err := nodes.Informer().AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			node, ok := object.(*corev1.Node)
			return ok && node.Annotations[endpointAnnotation] != ""
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { wake(changed) },
			UpdateFunc: func(before, after any) {
				if before.(*corev1.Node).Annotations[endpointAnnotation] != after.(*corev1.Node).Annotations[endpointAnnotation] {
					wake(changed)
				}
			},
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = nodes.Informer().RemoveEventHandler(registration) }()
	ticker := p.clock.NewTicker(republish)
	defer ticker.Stop()
	for last := ""; ; {
		err := p.ensureNodes(ctx, nodes, clusterIP)
		last = logChange(ctx, err, last, "Cannot publish the DNS servers of nodes, will retry")
		select {
		case <-changed:
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Publisher) ensureNodes(ctx context.Context, nodes coreinformers.NodeInformer, clusterIP netip.Addr) error {
	all, err := nodes.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, node := range all {
		if node.Annotations[endpointAnnotation] == "" {
			continue
		}
		endpoint, err := announced(node)
		if err == nil {
			err = p.Ensure(ctx, Published{ClusterIP: clusterIP, Node: node.Name, NodeUID: node.UID, Endpoint: endpoint})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// announced returns the address that a node announces. It must be one of the node's own range, or of its machine, so that no node can
// answer the questions of others' pods by naming another address.
func announced(node *corev1.Node) (netip.AddrPort, error) {
	endpoint, err := netip.ParseAddrPort(node.Annotations[endpointAnnotation])
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("node %s announces a DNS server: %w", node.Name, err)
	}
	for _, cidr := range node.Spec.PodCIDRs {
		if own, err := netip.ParsePrefix(cidr); err == nil && own.Contains(endpoint.Addr()) {
			return endpoint, nil
		}
	}
	for _, address := range node.Status.Addresses {
		if address.Address == endpoint.Addr().String() {
			return endpoint, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("node %s announces a DNS server at %s, which is neither in its range %v nor its own address", node.Name, endpoint.Addr(), node.Spec.PodCIDRs)
}
