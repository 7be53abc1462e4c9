// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/links"
)

const (
	// rejectProtocol marks the routes of this file; see /etc/iproute2/rt_protos.
	rejectProtocol = 75
	// rejectMetric makes the kernel prefer every other route to the same range.
	rejectMetric = 1<<31 - 1
	// rejectInterval is the interval at which the routes are restored while Services are not routed.
	rejectInterval = 2 * time.Second
)

// rejects are routes by which the kernel rejects packets to ranges of Services, so that they do not leave by the
// machine's default gateway: before Services are routed, on a machine without nft, and when another program removes
// the interface of Services. Routes to that interface have precedence. Clusters on the machine with the same range
// share the route.
type rejects struct{ ranges []netip.Prefix }

// ensure rejects packets to the ranges, and no longer to those of the call before. Without ranges it changes nothing.
func (r *rejects) ensure(ranges []netip.Prefix) error {
	if len(ranges) == 0 {
		return nil
	}
	var errs []error
	for _, former := range r.ranges {
		if !slices.Contains(ranges, former) {
			errs = append(errs, stopRejecting(former))
		}
	}
	errs = append(errs, Reject(ranges))
	r.ranges = slices.Clone(ranges)
	return errors.Join(errs...)
}

// Reject makes the machine reject packets to ranges of Services, from itself and from pods, unless another route
// to the range exists.
func Reject(ranges []netip.Prefix) error {
	var errs []error
	for _, prefix := range ranges {
		if err := netlink.RouteAdd(rejecting(prefix)); err != nil && !errors.Is(err, fs.ErrExist) {
			errs = append(errs, fmt.Errorf("rejecting packets to %s until Services are routed: %w", prefix, err))
		}
	}
	return errors.Join(errs...)
}

func rejecting(prefix netip.Prefix) *netlink.Route {
	return &netlink.Route{Dst: ipNet(prefix), Type: unix.RTN_UNREACHABLE, Protocol: rejectProtocol, Priority: rejectMetric}
}

func stopRejecting(prefix netip.Prefix) error {
	if err := netlink.RouteDel(rejecting(prefix)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the route that rejects packets to %s: %w", prefix, err)
	}
	return nil
}

// removeRejects removes the routes of all clusters on the machine. Those that run restore theirs.
func removeRejects() error {
	present, err := links.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: rejectProtocol}, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, route := range present {
		if prefix, err := netip.ParsePrefix(route.Dst.String()); err == nil {
			errs = append(errs, stopRejecting(prefix))
		}
	}
	return errors.Join(errs...)
}

// KeepRejecting rejects packets to the ranges of all ServiceCIDRs until ctx is done. It is for a node that does not
// route Services; a [Network] does the same by itself.
func KeepRejecting(ctx context.Context, cidrs networkinginformers.ServiceCIDRInformer, c clock.WithTicker) error {
	ticker := c.NewTicker(rejectInterval)
	defer ticker.Stop()
	var r rejects
	unmended := unmended{}
	for {
		err := r.ensure(allRanges(cidrs.Lister()))
		unmended.log("the routes that reject packets to Services", err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
