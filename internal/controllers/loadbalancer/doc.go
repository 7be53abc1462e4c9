// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loadbalancer gives addresses to Services of the type LoadBalancer, as the service controller of a cloud
// does: it writes status.loadBalancer, and holds the Service with the finalizer
// service.kubernetes.io/load-balancer-cleanup. Packets are routed by internal/network.
//
// Without pools, a Service gets the addresses of the nodes, which Services share as long as their ports differ. With
// pools, each Service gets an address of its own. A Service that can get none has no address at all, and an event
// with the reason; it is tried again as soon as another Service releases something.
//
// The statuses of the Services are the only record of what is allocated. They are read once, before the first
// allocation.
package loadbalancer
