// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// affinity adds chains that lead each client to the endpoint that it had, if it came within the timeout, and
// returns the first. Each endpoint has a set of its clients. The names depend on nothing but the port, its
// timeout and the endpoint, so that the sets, and with them the affinity, outlive the process.
func (p portRules) affinity(to target) string {
	name := p.affinityName()
	var known, all []string
	for i, e := range to.endpoints {
		chain := p.sticky(name, e)
		known = append(known, fmt.Sprintf("%s saddr @%s goto %[2]s", p.family.ip, chain))
		all = append(all, fmt.Sprintf("%d : goto %s", i, chain))
	}
	if to.local {
		name += "-local"
	}
	draw := fmt.Sprintf("numgen random mod %d vmap { %s }", len(all), strings.Join(all, ", "))
	p.rules.AddChain(name, nft.Chain{Rules: append(known, draw)})
	return name
}

// sticky adds the chain of one endpoint, and the set of its clients, which has the same name.
func (p portRules) sticky(base string, e netip.AddrPort) string {
	name := fmt.Sprintf("%s-%s-%d", base, strings.ReplaceAll(e.Addr().String(), ":", "."), e.Port())
	p.rules.AddSet(name, nft.Set{Type: p.family.address, Timeout: p.timeout()})
	p.rules.AddChain(name, nft.Chain{Rules: []string{
		fmt.Sprintf("update @%s { %s saddr }", name, p.family.ip),
		fmt.Sprintf("meta l4proto %d dnat %s to %s", protocols[p.port.Protocol], p.family.ip, e),
	}})
	return name
}

func (p portRules) affinityName() string {
	return p.unique("affinity", p.timeout().String())
}

// unique returns a name for this port of the Service. It is short, because names have a limit.
func (p portRules) unique(base string, more ...string) string {
	id := strings.Join(append([]string{p.svc.Namespace, p.svc.Name, string(p.port.Protocol), fmt.Sprint(p.port.Port)}, more...), "/")
	sum := sha256.Sum256([]byte(id))
	return p.family.name(base) + "-" + hex.EncodeToString(sum[:8])
}

func (p portRules) timeout() time.Duration {
	seconds := int32(v1.DefaultClientIPServiceAffinitySeconds)
	if c := p.svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

// firewall restricts the addresses of a load balancer to the Service's source ranges.
func (p portRules) firewall() {
	balancers := p.balancerIPs()
	if len(p.svc.Spec.LoadBalancerSourceRanges) == 0 || len(balancers) == 0 {
		return
	}
	var allowed []string
	for _, prefix := range p.family.prefixes(p.svc.Spec.LoadBalancerSourceRanges) {
		allowed = append(allowed, fmt.Sprintf("%s saddr %s return", p.family.ip, prefix))
	}
	name := p.unique("firewall")
	for _, ip := range balancers {
		// The node itself reaches the Service with the balancer's address as its own.
		allowed = append(allowed, fmt.Sprintf("%s saddr %s return", p.family.ip, ip))
		p.rules.AddElement(p.family.name("firewall"), addressKey(ip, p.port.Protocol, p.port.Port), "goto "+name)
	}
	p.rules.AddChain(name, nft.Chain{Rules: append(allowed, "drop")})
}
