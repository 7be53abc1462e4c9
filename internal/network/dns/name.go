// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// The labels below the zone.
const (
	servicesLabel = "svc"
	podsLabel     = "pod"
)

// name is a name of the cluster's zone:
//
//	[<endpoint>.]<service>.<namespace>.svc
//	_<port>._<protocol>.<service>.<namespace>.svc
//	<address with dashes>.<namespace>.pod
//
// The fields on the left are empty if the name is a shorter one.
type name struct {
	kind, namespace, object string
	endpoint                string
	port, protocol          string
}

// parseName takes the labels below the zone apart. It reports whether the schema has such names.
func parseName(labels []string) (n name, ok bool) {
	slices.Reverse(labels)
	for i, field := range []*string{&n.kind, &n.namespace, &n.object} {
		if i < len(labels) {
			*field = labels[i]
		}
	}
	if n.kind != servicesLabel && n.kind != podsLabel && n.kind != "" {
		return n, false
	}
	switch {
	case len(labels) <= 3:
		return n, true
	case n.kind == podsLabel:
		return n, false
	case len(labels) == 4:
		n.endpoint = labels[3]
		return n, true
	case len(labels) == 5:
		var isProtocol, isPort bool
		n.protocol, isProtocol = strings.CutPrefix(labels[3], "_")
		n.port, isPort = strings.CutPrefix(labels[4], "_")
		return n, isProtocol && isPort
	}
	return n, false
}

// podAddress returns the address in the name of a pod.
func podAddress(label string) (netip.Addr, bool) {
	separator := ":"
	if strings.Count(label, "-") == 3 && !strings.Contains(label, "--") {
		separator = "."
	}
	address, err := netip.ParseAddr(strings.ReplaceAll(label, "-", separator))
	return address, err == nil && address.Zone() == ""
}

// The zones of PTR records.
const (
	reverse4 = ".in-addr.arpa."
	reverse6 = ".ip6.arpa."
)

// reverseAddress returns the address that a lower-case name of PTR records stands for. It reports whether
// the name stands for a whole one.
func reverseAddress(name string) (netip.Addr, bool) {
	if labels, ok := strings.CutSuffix(name, reverse4); ok {
		parts := strings.Split(labels, ".")
		slices.Reverse(parts)
		address, err := netip.ParseAddr(strings.Join(parts, "."))
		return address, err == nil && address.Is4()
	}
	labels, ok := strings.CutSuffix(name, reverse6)
	if !ok || len(labels) != 63 {
		return netip.Addr{}, false
	}
	nibbles := strings.Split(labels, ".")
	slices.Reverse(nibbles)
	var address [16]byte
	if n, err := hex.Decode(address[:], []byte(strings.Join(nibbles, ""))); err != nil || n != len(address) {
		return netip.Addr{}, false
	}
	return netip.AddrFrom16(address), true
}

// below returns the labels of a canonical name below a zone. It reports whether the name is in the zone.
func below(name, zone string) ([]string, bool) {
	if name == zone {
		return nil, true
	}
	if !dns.IsSubDomain(zone, name) {
		return nil, false
	}
	return dns.SplitDomainName(name[:len(name)-len(zone)]), true
}
