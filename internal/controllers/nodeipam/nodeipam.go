// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeipam allocates a pod CIDR to every node without one: the next free subnet of the
// cluster's range. An existing pod CIDR is never changed, and is taken until its node is
// deleted.
package nodeipam

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Name is the controller's identity: that of the node controller, as upstream's.
const Name = "node-controller"

// retryPeriod is the delay of a retry if all subnets are taken.
const retryPeriod = time.Minute

// Range is a pod range of the cluster, which is divided into subnets for nodes.
type Range struct {
	// CIDR is the whole range, such as 10.244.0.0/16.
	CIDR netip.Prefix
	// NodeBits is the prefix length of a node's subnet. 0 means upstream's defaults, 24
	// for IPv4 and 64 for IPv6.
	NodeBits int
}

// Options holds the ranges of the cluster.
type Options struct {
	// Ranges are the cluster's pod ranges: one, or one for each IP family. A node
	// gets a subnet of each.
	Ranges []Range
	// Services are the Service ranges, which no node gets.
	Services []netip.Prefix
	// Routed returns ranges that the server's machine routes elsewhere, which no node gets either.
	Routed func() ([]netip.Prefix, error)
	// Simulated is the label of nodes that need no range.
	Simulated string
}

// Add returns the function that registers the controller. It watches nodes.
func Add(options Options) func(control.Env) error {
	return func(env control.Env) error {
		return ctrl.NewControllerManagedBy(env.Manager).
			Named("node-ipam-controller").
			WithOptions(env.Options(1)). // one at a time: no two nodes get the same range
			For(&corev1.Node{}).
			Complete(newReconciler(env, options))
	}
}

type reconciler struct {
	control.Env
	Options
	// allocated holds, by node name, the subnets that were allocated but may not be cached
	// yet.
	allocated map[string]allocation
}

type allocation struct {
	node   types.UID
	ranges []netip.Prefix
}

func newReconciler(env control.Env, options Options) *reconciler {
	return &reconciler{Env: env, Options: options, allocated: map[string]allocation{}}
}

// Reconcile allocates the subnets of one node.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, node); err != nil {
		delete(r.allocated, req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	_, simulated := node.Labels[r.Simulated]
	if len(node.Spec.PodCIDRs) > 0 || node.DeletionTimestamp != nil || simulated {
		delete(r.allocated, req.Name)
		return ctrl.Result{}, nil
	}
	if allocated, ok := r.allocated[req.Name]; ok && allocated.node == node.UID {
		return ctrl.Result{}, nil // the pending event requeues the node
	}
	taken, err := r.taken(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	ranges := make([]netip.Prefix, 0, len(r.Ranges))
	for _, from := range r.Ranges {
		subnet, ok := from.next(taken)
		if !ok {
			r.Events.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
				corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: %s", node.Name, "CIDRNotAvailable")
			return ctrl.Result{RequeueAfter: retryPeriod}, nil
		}
		ranges = append(ranges, subnet)
	}
	return ctrl.Result{}, owned.IgnoreStale(r.allocate(ctx, node, ranges))
}

// allocate writes the subnets to the node.
func (r *reconciler) allocate(ctx context.Context, node *corev1.Node, ranges []netip.Prefix) error {
	before := node
	node = node.DeepCopy()
	for _, p := range ranges {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	err := r.Client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		r.allocated[node.Name] = allocation{node: node.UID, ranges: ranges}
	}
	return err
}

// taken returns the ranges that are not available.
func (r *reconciler) taken(ctx context.Context) ([]netip.Prefix, error) {
	taken, err := r.Routed()
	if err != nil {
		return nil, err
	}
	taken = append(taken, r.Services...)
	for _, allocated := range r.allocated {
		taken = append(taken, allocated.ranges...)
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		for _, cidr := range nodes.Items[i].Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				taken = append(taken, p.Masked())
			}
		}
	}
	return taken, nil
}

// next returns the first subnet that overlaps none of the taken ones.
func (f Range) next(taken []netip.Prefix) (netip.Prefix, bool) {
	bits := f.NodeBits
	if bits == 0 {
		bits = map[bool]int{true: 24, false: 64}[f.CIDR.Addr().Is4()]
	}
	cidr := f.CIDR.Masked()
	if bits < cidr.Bits() || bits > cidr.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	candidate := netip.PrefixFrom(cidr.Addr(), bits)
	for cidr.Contains(candidate.Addr()) {
		obstacle, overlaps := firstOverlap(candidate, taken)
		if !overlaps {
			return candidate, true
		}
		// Continue after the larger of the two: a taken range may span many subnets.
		if obstacle.Bits() > bits {
			obstacle = candidate
		}
		after, ok := following(obstacle)
		if !ok {
			break
		}
		candidate = netip.PrefixFrom(after, bits)
	}
	return netip.Prefix{}, false
}

func firstOverlap(p netip.Prefix, taken []netip.Prefix) (netip.Prefix, bool) {
	for _, t := range taken {
		if p.Overlaps(t) {
			return t, true
		}
	}
	return netip.Prefix{}, false
}

// following returns the first address after p, unless p ends the address space.
func following(p netip.Prefix) (netip.Addr, bool) {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits() - 1; bit >= 0; bit-- {
		mask := byte(1) << (7 - bit%8)
		bytes[bit/8] ^= mask
		if bytes[bit/8]&mask != 0 {
			addr, ok := netip.AddrFromSlice(bytes)
			return addr, ok
		}
	}
	return netip.Addr{}, false
}
