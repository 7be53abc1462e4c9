// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	informers "k8s.io/client-go/informers/networking/v1"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	listers "k8s.io/client-go/listers/networking/v1"
)

// callTimeout limits each call to the API. Claims and releases are not cancelled with their
// request, since partial ones would leak.
const callTimeout = 10 * time.Second

// Addresses claims and releases ClusterIPs. Its listers are only hints that save requests; the
// API decides.
type Addresses struct {
	client networkingclient.NetworkingV1Interface
	known  listers.IPAddressLister
	ranges listers.ServiceCIDRLister
	random func(n uint64) uint64
}

// NewAddresses returns Addresses that read from the informers and write with the client.
func NewAddresses(client networkingclient.NetworkingV1Interface, shared informers.Interface) *Addresses {
	return &Addresses{
		client: client,
		known:  shared.IPAddresses().Lister(),
		ranges: shared.ServiceCIDRs().Lister(),
		random: rand.Uint64N,
	}
}

// Claim claims a specific address for a Service. A dry run claims nothing, and fails if a
// claim would probably fail.
func (a *Addresses) Claim(owner *corev1.Service, address netip.Addr, dryRun bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	inside := func(s span) bool { return s.contains(address) }
	spans, err := a.spans(ctx, inside)
	if err != nil {
		return err
	}
	if len(spans) == 0 {
		return ErrOutsideOfRanges
	}
	if !dryRun {
		return a.create(ctx, owner, address)
	}
	if a.isKnown(address) {
		return ErrAddressClaimed
	}
	return nil
}

// ClaimAny claims any address of the family. A dry run returns one that is probably free.
func (a *Addresses) ClaimAny(owner *corev1.Service, family corev1.IPFamily, dryRun bool) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	spans, err := a.spans(ctx, func(s span) bool { return s.size > 0 && Family(s.first) == family })
	if err != nil {
		return netip.Addr{}, err
	}
	for _, s := range spans {
		for address := range s.offers(a.random) {
			if a.isKnown(address) {
				continue
			}
			if dryRun {
				return address, nil
			}
			err := a.create(ctx, owner, address)
			if errors.Is(err, ErrAddressClaimed) {
				continue // claimed since the lister was updated
			}
			return address, err
		}
	}
	return netip.Addr{}, ErrFull
}

// Release releases an address of the Service. It ignores an address that is claimed for another
// Service.
func (a *Addresses) Release(owner *corev1.Service, address netip.Addr) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	claim, err := a.client.IPAddresses().Get(ctx, address.String(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !refersTo(claim, owner) {
		return nil
	}
	return a.remove(ctx, claim)
}

// remove deletes the claim, but not a later claim of the same address.
func (a *Addresses) remove(ctx context.Context, claim *networkingv1.IPAddress) error {
	err := a.client.IPAddresses().Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (a *Addresses) create(ctx context.Context, owner *corev1.Service, address netip.Addr) error {
	_, err := a.client.IPAddresses().Create(ctx, claimOf(owner, address), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return ErrAddressClaimed
	}
	return err
}

func claimOf(owner *corev1.Service, address netip.Addr) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: address.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(Family(address)),
			networkingv1.LabelManagedBy:       manager,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: owner.Namespace, Name: owner.Name,
		}},
	}
}

// refersTo reports whether the claim is for the Service.
func refersTo(claim *networkingv1.IPAddress, owner *corev1.Service) bool {
	ref := claim.Spec.ParentRef
	return ref != nil && ref.Group == "" && ref.Resource == "services" && ref.Namespace == owner.Namespace && ref.Name == owner.Name
}

func (a *Addresses) isKnown(address netip.Addr) bool {
	_, err := a.known.Get(address.String())
	return err == nil
}

// spans returns the ready ranges that match. If the lister, which may be stale, has none, it
// asks the API.
func (a *Addresses) spans(ctx context.Context, match func(span) bool) ([]span, error) {
	known, err := a.ranges.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	if spans := readySpans(known, match); len(spans) > 0 {
		return spans, nil
	}
	list, err := a.client.ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		known = append(known, &list.Items[i])
	}
	return readySpans(known, match), nil
}

func readySpans(ranges []*networkingv1.ServiceCIDR, match func(span) bool) []span {
	var spans []span
	for _, r := range ranges {
		if !r.DeletionTimestamp.IsZero() || !meta.IsStatusConditionTrue(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
			continue
		}
		for _, cidr := range r.Spec.CIDRs {
			prefix, err := netip.ParsePrefix(cidr)
			if err != nil {
				continue // stored by an older version; validation refuses it
			}
			if s := spanOf(prefix); match(s) && !slices.Contains(spans, s) {
				spans = append(spans, s)
			}
		}
	}
	return spans
}

// Family returns the IP family of an address.
func Family(address netip.Addr) corev1.IPFamily {
	if address.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
