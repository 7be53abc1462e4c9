// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kindred-project/kindred/internal/cluster"
	"github.com/kindred-project/kindred/internal/machine"
)

// ranges sets the ranges of addresses of Services, pods and load balancers.
func (o Options) ranges(config *cluster.Config) error {
	var err error
	if config.ServiceCIDRs, err = dualStack("service", orDefault(o.ServiceCIDR, DefaultServiceCIDR)); err != nil {
		return err
	}
	if !config.ServiceCIDRs[0].Addr().Is4() {
		return invalid("the service range %s is not IPv4; name an IPv4 range first, such as %s,%[1]s", config.ServiceCIDRs[0], DefaultServiceCIDR)
	}
	if config.ClusterCIDRs, err = o.clusterCIDRs(hasIPv6(config.ServiceCIDRs)); err != nil {
		return err
	}
	if o.PodCIDR != "" {
		if config.PodCIDRs, err = dualStack("pod", o.PodCIDR); err != nil {
			return err
		}
	}
	if config.LoadBalancerPools, err = o.loadBalancerPools(hasIPv6(config.ServiceCIDRs) || hasIPv6(config.PodCIDRs)); err != nil {
		return err
	}
	pools, services := named{"load balancer", config.LoadBalancerPools}, named{"service", config.ServiceCIDRs}
	if o.ClusterCIDR != "" {
		if err := disjoint(pools, named{"cluster", config.ClusterCIDRs}, services); err != nil {
			return err
		}
	}
	return disjoint(pools, named{"pod", config.PodCIDRs}, services)
}

// clusterCIDRs returns the ranges from which nodes get theirs, of each IP family that pods have. Nodes get a /24, and a /64.
func (o Options) clusterCIDRs(ipv6 bool) ([]netip.Prefix, error) {
	defaults := machine.DefaultClusterCIDRs(ipv6)
	if o.ClusterCIDR == "" {
		return defaults, nil
	}
	given, err := dualStack("cluster", o.ClusterCIDR)
	if err != nil {
		return nil, err
	}
	var ranges []netip.Prefix
	for i, subnet := range []int{24, 64}[:len(defaults)] {
		p := defaults[i]
		for _, g := range given {
			if g.Addr().Is4() == p.Addr().Is4() {
				p = g
			}
		}
		if p.Bits() > subnet {
			return nil, invalid("the cluster range %s is too small: each node gets a /%d of it", p, subnet)
		}
		ranges = append(ranges, p)
	}
	return ranges, nil
}

// dualStack parses one range, or one of each IP family, separated by a comma.
func dualStack(what, s string) ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		r, err := cidr(what, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	if len(ranges) > 2 || len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return nil, invalid("%s ranges %s: there can be one for IPv4 and one for IPv6", what, s)
	}
	return ranges, nil
}

// named are ranges of one purpose.
type named struct {
	what   string
	ranges []netip.Prefix
}

// disjoint checks that ranges of different purposes do not overlap.
func disjoint(all ...named) error {
	for i, a := range all {
		for _, b := range all[i+1:] {
			for _, p := range a.ranges {
				for _, q := range b.ranges {
					if p.Overlaps(q) {
						return invalid("the %s range %s and the %s range %s overlap", a.what, p, b.what, q)
					}
				}
			}
		}
	}
	return nil
}

func hasIPv6(ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// loadBalancerPools returns the pools, or an error about one that no Service could use. IPv6 ones need pods with IPv6.
func (o Options) loadBalancerPools(ipv6 bool) ([]netip.Prefix, error) {
	if len(o.LoadBalancerPools) > 0 && (o.NoNode || o.ContainerRuntimeEndpoint != "") {
		return nil, invalid("a pool of load balancers is given, but only a node with Kindred's own container runtime announces its addresses")
	}
	var pools []netip.Prefix
	for _, s := range o.LoadBalancerPools {
		pool, err := cidr("load balancer", s)
		if err != nil {
			return nil, err
		}
		if !pool.Addr().Is4() && !ipv6 {
			return nil, invalid("the load balancer range %s is IPv6, which pods do not have; give Services an IPv6 range too: --service-cidr %s,fd00:10:96::/112", pool, DefaultServiceCIDR)
		}
		pools = append(pools, pool)
	}
	return pools, nil
}

func cidr(what, s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return prefix, invalid("%s range %q is not a CIDR such as 10.0.0.0/16", what, s)
	}
	if prefix != prefix.Masked() {
		return prefix, invalid("%s range %s has bits beyond its length; did you mean %s?", what, s, prefix.Masked())
	}
	return prefix, nil
}
