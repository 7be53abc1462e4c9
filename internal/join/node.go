// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// Register creates the Node, unless it exists, and returns it when it has ranges for its pods, which a controller of the cluster
// allocates.
func Register(ctx context.Context, client kubernetes.Interface, node *corev1.Node) (*corev1.Node, error) {
	nodes := client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("register node %s: %w", node.Name, err)
	}
	for {
		current, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if len(current.Spec.PodCIDRs) > 0 {
			return current, nil
		}
		if err := awaitChange(ctx, client, current); err != nil {
			return nil, fmt.Errorf("node %s has no range for its pods: the cluster's controller manager allocates none: %w", node.Name, err)
		}
	}
}

// awaitChange returns when a Node has changed, or its watch has ended.
func awaitChange(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	changes, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, node.Name).String(), ResourceVersion: node.ResourceVersion,
	})
	if err != nil {
		return err
	}
	defer changes.Stop()
	select {
	case <-changes.ResultChan():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServiceRanges returns the ranges of the cluster's Services, the first ServiceCIDR's first.
func ServiceRanges(ctx context.Context, client kubernetes.Interface) ([]netip.Prefix, error) {
	cidr, err := client.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the ranges of Services: %w", err)
	}
	return Prefixes(cidr.Spec.CIDRs)
}

// Prefixes parses CIDRs.
func Prefixes(cidrs []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Masked())
	}
	return slices.Clip(all), nil
}

// AddressTowards returns the address of this machine from which it reaches a server.
func AddressTowards(server string) (netip.Addr, error) {
	address, err := addressOf(server)
	if err != nil {
		return netip.Addr{}, err
	}
	connection, err := net.Dial("udp", address) // sends nothing
	if err != nil {
		return netip.Addr{}, fmt.Errorf("this machine has no route to %s: %w", server, err)
	}
	defer connection.Close()
	return connection.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
