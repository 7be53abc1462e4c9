// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
	"github.com/kindred-project/kindred/internal/registry/serviceip"
)

// serviceClaims claims addresses and ports before a Service is written, and releases those that it
// no longer uses afterwards: see package serviceip.
type serviceClaims struct {
	families  families
	addresses *serviceip.Addresses
	ports     *serviceip.Ports
}

func (c serviceClaims) beginCreate(_ context.Context, s *corev1.Service, dryRun bool) (generic.Finish, error) {
	syncClusterIPs(s, nil)
	return c.claim(s, nil, dryRun)
}

func (c serviceClaims) beginUpdate(_ context.Context, s, old *corev1.Service, dryRun bool) (generic.Finish, error) {
	c.families.completeRead(old)
	keepGiven(s, old)
	syncClusterIPs(s, old)
	return c.claim(s, old, dryRun)
}

func (c serviceClaims) afterDelete(s *corev1.Service, dryRun bool) {
	if dryRun {
		return
	}
	c.families.completeRead(s)
	c.release(context.Background(), s, serviceip.HeldAddresses(s), serviceip.HeldPorts(s))
}

// claim claims the addresses and ports of s that old, nil on create, does not have.
func (c serviceClaims) claim(s, old *corev1.Service, dryRun bool) (generic.Finish, error) {
	if errs := check.Run(func(fields *check.Checker) { c.families.complete(fields, s, old) }); len(errs) > 0 {
		return nil, invalidService(s, errs...)
	}
	addresses, err := c.claimAddresses(s, old, dryRun)
	var ports []int32
	if err == nil {
		ports, err = c.claimPorts(s, old, dryRun)
	}
	if dryRun {
		return nil, err
	}
	if err != nil {
		c.release(context.Background(), s, addresses, nil)
		return nil, err
	}
	var hadAddresses []netip.Addr
	var hadPorts []int32
	if old != nil {
		hadAddresses, hadPorts = serviceip.HeldAddresses(old), serviceip.HeldPorts(old)
	}
	return func(ctx context.Context, outcome generic.Outcome) {
		switch outcome {
		case generic.Refused:
			c.release(ctx, s, addresses, ports)
		case generic.Written:
			c.release(ctx, s, without(hadAddresses, serviceip.HeldAddresses(s)), without(hadPorts, serviceip.HeldPorts(s)))
		case generic.Unknown: // serviceip.Repair finds out later
		}
	}, nil
}

func without[E comparable](all, except []E) []E {
	return slices.DeleteFunc(all, func(e E) bool { return slices.Contains(except, e) })
}

// release releases claims. If it fails, serviceip.Repair releases them later.
func (c serviceClaims) release(ctx context.Context, s *corev1.Service, addresses []netip.Addr, ports []int32) {
	var errs []error
	for _, address := range addresses {
		errs = append(errs, c.addresses.Release(s, address))
	}
	if len(ports) > 0 {
		errs = append(errs, c.ports.Release(ports...))
	}
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot release the addresses and ports of a Service; the next repair retries", "service", klog.KObj(s), "ips", addresses, "ports", ports)
	}
}

// claimAddresses claims one address of each family, and sets those that the Service does not
// request explicitly. Validation refuses changes of addresses that it already has.
func (c serviceClaims) claimAddresses(s, old *corev1.Service, dryRun bool) ([]netip.Addr, error) {
	if !needsClusterIP(s) || isHeadless(s) {
		return nil, nil
	}
	first := 0
	if old != nil && needsClusterIP(old) {
		if isHeadless(old) {
			return nil, nil
		}
		first = len(old.Spec.ClusterIPs)
	}
	ips := slices.Clone(s.Spec.ClusterIPs)
	var claimed []netip.Addr
	for i := first; i < len(s.Spec.IPFamilies); i++ {
		if len(ips) == i {
			ips = append(ips, "")
		}
		address, err := c.claimAddress(s, s.Spec.IPFamilies[i], ips[i], dryRun)
		if err != nil {
			return claimed, err
		}
		claimed = append(claimed, address)
		if ips[i] == "" {
			ips[i] = address.String()
		}
	}
	s.Spec.ClusterIPs = ips
	if len(claimed) > 0 {
		s.Spec.ClusterIP = ips[0]
	}
	return claimed, nil
}

func (c serviceClaims) claimAddress(s *corev1.Service, family corev1.IPFamily, wanted string, dryRun bool) (netip.Addr, error) {
	if wanted == "" {
		address, err := c.addresses.ClaimAny(s, family, dryRun)
		switch {
		case errors.Is(err, serviceip.ErrFull):
			err = apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", s.Name, err))
		case err != nil:
			err = invalidClusterIPs(s, fmt.Sprintf("failed to allocate IP: %v", err))
		}
		return address, err
	}
	address, ok := serviceip.ParseAddress(wanted)
	if !ok {
		return address, apierrors.NewInternalError(fmt.Errorf("failed to parse service IP %q", wanted))
	}
	if err := c.addresses.Claim(s, address, dryRun); err != nil {
		return address, invalidClusterIPs(s, fmt.Sprintf("failed to allocate IP %v: %v", wanted, err))
	}
	return address, nil
}

// portWish is a node port that a Service requests: a specific one, or any (0).
type portWish struct {
	number int32
	// ports are the indexes in spec.ports that share it; empty for the health check.
	ports []int
}

// claimPorts claims all requested node ports, with that of the health check, or none, and sets them
// in the Service.
func (c serviceClaims) claimPorts(s, old *corev1.Service, dryRun bool) ([]int32, error) {
	wishes := portWishes(s, old)
	numbers := make([]int32, 0, len(wishes))
	for _, wish := range wishes {
		numbers = append(numbers, wish.number)
	}
	claimed, err := c.ports.Claim(numbers, dryRun)
	var failed *serviceip.PortError
	if errors.As(err, &failed) {
		return nil, wishes[failed.Index].refused(s, failed.Err)
	}
	if err != nil {
		return nil, err
	}
	for i, wish := range wishes {
		if len(wish.ports) == 0 {
			s.Spec.HealthCheckNodePort = claimed[i]
		}
		for _, place := range wish.ports {
			s.Spec.Ports[place].NodePort = claimed[i]
		}
	}
	return claimed, nil
}

// portWishes returns the node ports that s needs and old does not have. Ports with the same number
// share a node port, such as DNS over TCP and UDP.
func portWishes(s, old *corev1.Service) []portWish {
	held := sets.New[int32]()
	if old != nil {
		held.Insert(serviceip.HeldPorts(old)...)
	}
	var wishes []portWish
	if hasNodePorts(s) {
		wishes = nodePortWishes(s, held)
	}
	if needsHealthCheck(s) && (old == nil || !needsHealthCheck(old)) {
		wishes = append(wishes, portWish{number: s.Spec.HealthCheckNodePort})
	}
	return wishes
}

func nodePortWishes(s *corev1.Service, held sets.Set[int32]) []portWish {
	var wishes []portWish
	asked := map[int32]int32{} // port to its requested node port
	for i, p := range s.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		if _, twice := asked[p.Port]; !twice {
			asked[p.Port] = p.NodePort
		}
		if !held.Has(p.NodePort) {
			held.Insert(p.NodePort)
			wishes = append(wishes, portWish{p.NodePort, []int{i}})
		}
	}
	if !givesNodePorts(s) {
		return wishes
	}
	anyFor := map[int32]int{} // port to the index of its wish for any node port
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.NodePort != 0 {
			continue
		}
		if number, ok := asked[p.Port]; ok {
			p.NodePort = number
		} else if wish, ok := anyFor[p.Port]; ok {
			wishes[wish].ports = append(wishes[wish].ports, i)
		} else {
			anyFor[p.Port] = len(wishes)
			wishes = append(wishes, portWish{0, []int{i}})
		}
	}
	return wishes
}

func (w portWish) refused(s *corev1.Service, err error) error {
	health := len(w.ports) == 0
	switch {
	case health && w.number != 0:
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", w.number, err))
	case health:
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", w.number, err))
	case w.number == 0:
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
	}
	path := field.NewPath("spec", "ports").Index(w.ports[0]).Child("nodePort")
	return invalidService(s, field.Invalid(path, w.number, err.Error()))
}

func invalidClusterIPs(s *corev1.Service, message string) error {
	return invalidService(s, field.Invalid(field.NewPath("spec", "clusterIPs"), s.Spec.ClusterIPs, message))
}

func invalidService(s *corev1.Service, errs ...*field.Error) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), s.Name, errs)
}
