// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	"k8s.io/utils/clock"
)

// hostsTTL is the TTL of CoreDNS' plugin hosts, in seconds.
const hostsTTL = 3600

// hosts answers from a file in the format of /etc/hosts. A nil hosts has no names.
type hosts struct {
	entries *file[hostEntries]
}

type hostEntries struct {
	addresses map[string][]netip.Addr
	names     map[netip.Addr][]string
}

func newHosts(path string, c clock.PassiveClock) *hosts {
	if path == "" {
		return nil
	}
	return &hosts{newFile(path, c, parseHosts)}
}

// parseHosts reads lines of an address and its names: hosts(5).
func parseHosts(text []byte) hostEntries {
	entries := hostEntries{addresses: map[string][]netip.Addr{}, names: map[netip.Addr][]string{}}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		address, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		address = address.WithZone("").Unmap()
		for _, field := range fields[1:] {
			if _, ok := dns.IsDomainName(field); !ok {
				continue
			}
			name := dns.CanonicalName(field)
			entries.addresses[name] = append(entries.addresses[name], address)
			entries.names[address] = append(entries.names[address], name)
		}
	}
	return entries
}

// answer returns the records of a name in the file. It reports false if the question is to be forwarded. A
// name that the file has only addresses of the other family for is not forwarded, because the answer
// would not be that of the file.
func (h *hosts) answer(owner string, q question) ([]dns.RR, bool) {
	if h == nil {
		return nil, false
	}
	entries := h.entries.get()
	if ip, ok := reverseAddress(q.name); ok && q.rrtype == dns.TypePTR {
		names := entries.names[ip]
		return pointers(owner, names, hostsTTL), len(names) > 0
	}
	if q.rrtype != dns.TypeA && q.rrtype != dns.TypeAAAA {
		return nil, false
	}
	var answer []dns.RR
	for _, ip := range entries.addresses[q.name] {
		if ip.Is4() == (q.rrtype == dns.TypeA) {
			answer = append(answer, address(owner, ip, hostsTTL))
		}
	}
	return answer, len(entries.addresses[q.name]) > 0
}
