// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"math/rand/v2"
	"net/netip"

	"github.com/miekg/dns"
)

// TTLs in seconds: those of CoreDNS with the configuration of kubeadm.
const (
	recordTTL  = 30
	versionTTL = 28800
)

func header(owner string, rrtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// answer returns the records of a type, and further ones that a client will need. owner is the name as
// the client wrote it.
func (z *zone) answer(owner string, rrtype uint16, f found) (answer, extra []dns.RR) {
	switch rrtype {
	case dns.TypeA, dns.TypeAAAA:
		answer = addresses(owner, rrtype, f.targets)
		rand.Shuffle(len(answer), func(i, j int) { answer[i], answer[j] = answer[j], answer[i] })
	case dns.TypeSRV:
		return services(owner, f.targets)
	case dns.TypeTXT:
		if f.text != "" {
			answer = []dns.RR{&dns.TXT{Hdr: header(owner, dns.TypeTXT, versionTTL), Txt: []string{f.text}}}
		}
	case dns.TypeSOA:
		if f.server {
			answer = []dns.RR{z.soa()}
		}
	case dns.TypeNS:
		if f.server {
			return z.nameServer(owner)
		}
	}
	return answer, nil
}

// soa returns the start of authority. Its last field is the TTL of negative answers (RFC 2308). The serial
// is constant, because the zone cannot be transferred.
func (z *zone) soa() dns.RR {
	return &dns.SOA{
		Hdr: header(z.origin, dns.TypeSOA, recordTTL), Ns: "ns.dns." + z.origin, Mbox: "hostmaster." + z.origin,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: recordTTL,
	}
}

func (z *zone) nameServer(owner string) (answer, extra []dns.RR) {
	name := "ns.dns." + z.origin
	targets := z.server()
	extra = append(addresses(name, dns.TypeA, targets), addresses(name, dns.TypeAAAA, targets)...)
	return []dns.RR{&dns.NS{Hdr: header(owner, dns.TypeNS, recordTTL), Ns: name}}, extra
}

// addresses returns A or AAAA records. Several ports at one address are one record.
func addresses(owner string, rrtype uint16, targets []target) []dns.RR {
	out := make([]dns.RR, 0, len(targets))
	seen := make(map[netip.Addr]struct{}, len(targets))
	for _, t := range targets {
		if _, twice := seen[t.address]; twice || t.address.Is4() != (rrtype == dns.TypeA) {
			continue
		}
		seen[t.address] = struct{}{}
		out = append(out, address(owner, t.address, recordTTL))
	}
	return out
}

func address(owner string, ip netip.Addr, ttl uint32) dns.RR {
	if ip.Is4() {
		return &dns.A{Hdr: header(owner, dns.TypeA, ttl), A: ip.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(owner, dns.TypeAAAA, ttl), AAAA: ip.AsSlice()}
}

// services returns SRV records of equal weight, and the addresses of their targets.
func services(owner string, targets []target) (answer, extra []dns.RR) {
	type port struct {
		name string
		port uint16
	}
	type host struct {
		name    string
		address netip.Addr
	}
	ports, hosts := map[port]struct{}{}, map[host]struct{}{}
	weight := uint16(max(1, 100/max(1, len(targets))))
	for _, t := range targets {
		if t.port == 0 || t.name == "" {
			continue
		}
		if _, twice := ports[port{t.name, t.port}]; !twice {
			ports[port{t.name, t.port}] = struct{}{}
			answer = append(answer, &dns.SRV{Hdr: header(owner, dns.TypeSRV, recordTTL), Weight: weight, Port: t.port, Target: t.name})
		}
		if _, twice := hosts[host{t.name, t.address}]; !twice {
			hosts[host{t.name, t.address}] = struct{}{}
			extra = append(extra, address(t.name, t.address, recordTTL))
		}
	}
	return answer, extra
}

// pointers returns the PTR records of an address.
func pointers(owner string, names []string, ttl uint32) []dns.RR {
	var answer []dns.RR
	for _, name := range names {
		answer = append(answer, &dns.PTR{Hdr: header(owner, dns.TypePTR, ttl), Ptr: name})
	}
	return answer
}
