// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/netip"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/internal/ingress"
	"github.com/kindred-project/kindred/internal/ingress/compile"
	"github.com/kindred-project/kindred/internal/machine"
	"github.com/kindred-project/kindred/internal/part"
)

// Ingress configures the proxy of Ingresses.
type Ingress struct {
	// Address is the address that it listens on; the zero Addr is all addresses of the machine.
	Address             netip.Addr
	HTTPPort, HTTPSPort uint16
}

// startIngress starts the proxy of Ingresses if it is configured, and waits until its ports are open.
func (c *Cluster) startIngress(ctx context.Context, steps *steps) error {
	config := c.config.Ingress
	if config == nil {
		return nil
	}
	client, err := kubernetes.NewForConfig(configFor(c.server, ingressUser))
	if err != nil {
		return err
	}
	gateways, err := dynamic.NewForConfig(configFor(c.server, ingressUser))
	if err != nil {
		return err
	}
	definitions, err := clientset.NewForConfig(configFor(c.server, ingressUser))
	if err != nil {
		return err
	}
	events, err := part.Recorder(c.parts.Context(), configFor(c.server, ingressUser), "kindred-ingress")
	if err != nil {
		return err
	}
	fallback, _ := netip.AddrFromSlice(machine.HostIP())
	proxy, err := ingress.New(ingress.Options{
		Client: client, Dynamic: gateways, Definitions: definitions, Pools: c.config.LoadBalancerPools, Informers: c.server.Informers(), Events: events, Clock: c.config.Clock, Notice: c.config.Notice,
		Address: config.Address, Ports: compile.Ports{HTTP: config.HTTPPort, HTTPS: config.HTTPSPort},
		Node: c.config.NodeName, Fallback: fallback.Unmap(),
	})
	if err != nil {
		return err
	}
	c.server.StartInformers()
	c.parts.Start("ingress", proxy.Run)
	if err := part.Await(ctx, proxy.Ready()); err != nil {
		return err
	}
	steps.done("ingress")
	return nil
}
