// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	netutils "k8s.io/utils/net"
)

// repairInterval is upstream's.
const repairInterval = 3 * time.Minute

// Repair reconciles claims and Services, after a crash or a timeout of the store. It claims
// what a Service uses without a claim. An unused claim may belong to a Service that another
// server is about to write: Repair releases it if it is still unused at the next check,
// minutes later.
//
// Repair reads the claims before the Services. A Service is stored after its claims, so a
// claim that is missing for it is really missing.
type Repair struct {
	services  coreclient.ServicesGetter
	addresses *Addresses
	ports     *Ports
	events    Recorders

	settled      uint64
	unusedClaims sets.Set[types.UID]
	unusedPorts  sets.Set[int32]
}

// NewRepair returns a Repair.
func NewRepair(services coreclient.ServicesGetter, addresses *Addresses, ports *Ports, recorders Recorders) *Repair {
	return &Repair{services: services, addresses: addresses, ports: ports, events: recorders}
}

// Run checks after every interval, until ctx is done.
func (r *Repair) Run(ctx context.Context, c clock.WithTicker, checked func()) {
	ticker := c.NewTicker(repairInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		switch err := r.Once(ctx); {
		case err == nil:
			checked()
		case ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Cannot compare the addresses and ports of Services with their claims, retrying")
		}
	}
}

// Start makes the first check. No server that made writes up to the store revision settled is
// still running, so unused claims up to that revision are released immediately. settled is 0
// for a store that other servers write to.
func (r *Repair) Start(ctx context.Context, settled uint64) error {
	r.settled = settled
	defer func() { r.settled = 0 }()
	return r.Once(ctx)
}

// Once makes one check.
func (r *Repair) Once(ctx context.Context) error {
	managed := labels.Set{networkingv1.LabelManagedBy: manager}.AsSelector().String()
	claims, err := r.addresses.client.IPAddresses().List(ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return err
	}
	claimedPorts, portsRevision, err := r.ports.claimed(ctx)
	if err != nil {
		return err
	}
	services, err := r.services.Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return errors.Join(
		r.repairAddresses(ctx, claims.Items, services.Items),
		r.repairPorts(ctx, claimedPorts, portsRevision <= r.settled, services.Items))
}

func (r *Repair) repairAddresses(ctx context.Context, claims []networkingv1.IPAddress, services []corev1.Service) error {
	byAddress := map[string]*networkingv1.IPAddress{}
	for i := range claims {
		byAddress[claims[i].Name] = &claims[i]
	}
	var errs []error
	used := sets.New[string]()
	for i := range services {
		service := &services[i]
		for _, address := range HeldAddresses(service) {
			claim := byAddress[address.String()]
			if r.isOutOfRange(ctx, address) {
				r.events.outOfRange(service, address)
			}
			if claim != nil && refersTo(claim, service) {
				used.Insert(claim.Name)
				continue
			}
			if err := r.claimForOwner(ctx, service, address, claim, services); err != nil {
				errs = append(errs, err)
			}
		}
	}
	unused := sets.New[types.UID]()
	for i := range claims {
		claim := &claims[i]
		switch {
		case used.Has(claim.Name):
		case !r.unusedClaims.Has(claim.UID) && !r.isSettled(claim):
			unused.Insert(claim.UID)
		default:
			klog.FromContext(ctx).Info("Released a ClusterIP that no Service uses", "ip", claim.Name)
			r.events.leaked(claim)
			errs = append(errs, r.addresses.remove(ctx, claim))
		}
	}
	r.unusedClaims = unused
	return errors.Join(errs...)
}

func (r *Repair) isSettled(claim *networkingv1.IPAddress) bool {
	revision, err := storage.APIObjectVersioner{}.ObjectResourceVersion(claim)
	return err == nil && revision <= r.settled
}

// isOutOfRange reports whether no range contains the address. It returns false on an error.
func (r *Repair) isOutOfRange(ctx context.Context, address netip.Addr) bool {
	with, err := r.addresses.spans(ctx, func(s span) bool { return s.contains(address) })
	return err == nil && len(with) == 0
}

// claimForOwner claims an address for the Service that uses it. A claim for another Service
// stays until a later check releases it as unused.
func (r *Repair) claimForOwner(ctx context.Context, owner *corev1.Service, address netip.Addr, other *networkingv1.IPAddress, services []corev1.Service) error {
	if other != nil {
		if isUsed(other, services) {
			r.events.shared(owner, address)
		} else {
			r.events.strayed(owner, address)
		}
		return fmt.Errorf("the ClusterIP %s of Service %s is claimed for %s; recreate one of the two", address, klog.KObj(owner), refText(other))
	}
	r.events.unclaimed(owner, address)
	klog.FromContext(ctx).Info("Claimed a ClusterIP that a Service used without a claim", "ip", address, "service", klog.KObj(owner))
	err := r.addresses.create(ctx, owner, address)
	if errors.Is(err, ErrAddressClaimed) {
		return nil // since the list
	}
	return err
}

// isUsed reports whether the Service that a claim names uses the address.
func isUsed(claim *networkingv1.IPAddress, services []corev1.Service) bool {
	return slices.ContainsFunc(services, func(s corev1.Service) bool {
		return refersTo(claim, &s) && slices.ContainsFunc(HeldAddresses(&s), func(a netip.Addr) bool { return a.String() == claim.Name })
	})
}

func refText(claim *networkingv1.IPAddress) string {
	if ref := claim.Spec.ParentRef; ref != nil {
		return ref.Resource + " " + ref.Namespace + "/" + ref.Name
	}
	return "no object"
}

func (r *Repair) repairPorts(ctx context.Context, claimed *big.Int, settled bool, services []corev1.Service) error {
	used, missing := sets.New[int32](), sets.New[int32]()
	for i := range services {
		for _, port := range HeldPorts(&services[i]) {
			if !isNodePort(port) {
				r.events.portOutOfRange(&services[i], port)
				continue
			}
			switch {
			case used.Has(port):
				r.events.portShared(&services[i], port)
			case claimed.Bit(bit(port)) == 0:
				missing.Insert(port)
				r.events.portUnclaimed(&services[i], port)
			}
			used.Insert(port)
		}
	}
	unused, leaked := sets.New[int32](), sets.New[int32]()
	for offset := range portCount {
		port := int32(firstPort + offset)
		switch {
		case claimed.Bit(offset) == 0 || used.Has(port):
		case settled || r.unusedPorts.Has(port):
			leaked.Insert(port)
		default:
			unused.Insert(port)
		}
	}
	r.unusedPorts = unused
	if len(missing) == 0 && len(leaked) == 0 {
		return nil
	}
	klog.FromContext(ctx).Info("Repaired the claims of node ports", "claimed", sets.List(missing), "released", sets.List(leaked))
	return r.ports.update(ctx, func(claimed *big.Int) error {
		for port := range missing {
			claimed.SetBit(claimed, bit(port), 1)
		}
		for port := range leaked {
			claimed.SetBit(claimed, bit(port), 0)
		}
		return nil
	})
}

// HeldAddresses returns the ClusterIPs of a Service.
func HeldAddresses(s *corev1.Service) []netip.Addr {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var held []netip.Addr
	for _, ip := range s.Spec.ClusterIPs {
		if address, ok := ParseAddress(ip); ok {
			held = append(held, address)
		}
	}
	return held
}

// ParseAddress parses an address of a Service. It accepts leading zeros, as older versions did. It
// reports false for anything else, such as "None".
func ParseAddress(ip string) (netip.Addr, bool) {
	address, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(ip))
	return address.Unmap(), ok
}

// HeldPorts returns the node ports of a Service, without duplicates.
func HeldPorts(s *corev1.Service) []int32 {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		return nil
	}
	held := sets.New[int32]()
	for _, port := range s.Spec.Ports {
		held.Insert(port.NodePort)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		held.Insert(s.Spec.HealthCheckNodePort)
	}
	held.Delete(0)
	return sets.List(held)
}
