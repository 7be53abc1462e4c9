// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// parse returns endpoints from words: an address's last byte, then "@node", "zone=..." and "node=..." hints, and
// the conditions "unready", "draining" (terminating, but serving) and "ending" (terminating, not serving).
func parse(t *testing.T, words ...string) *discoveryv1.EndpointSlice {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To(int32(80)), Protocol: ptr.To(v1.ProtocolTCP)}},
	}
	for _, w := range words {
		parts := strings.Fields(w)
		e := discoveryv1.Endpoint{Addresses: []string{"10.0.0." + parts[0]}}
		for _, p := range parts[1:] {
			switch name, value, _ := strings.Cut(p, "="); {
			case p[0] == '@':
				e.NodeName = ptr.To(p[1:])
			case name == "zone":
				e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: value}}}
			case name == "node":
				e.Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: value}}}
			case p == "unready":
				e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false)}
			case p == "draining":
				e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
			case p == "ending":
				e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false), Terminating: ptr.To(true)}
			default:
				t.Fatalf("what is %q?", p)
			}
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return slice
}

func lastBytes(all []netip.AddrPort) string {
	var bytes []string
	for _, a := range all {
		bytes = append(bytes, fmt.Sprint(a.Addr().As4()[3]))
	}
	return strings.Join(bytes, " ")
}

func TestChoose(t *testing.T) {
	for name, tt := range map[string]struct {
		endpoints      []string
		cluster, local string
		nowhere        bool
	}{
		"none":                             {nowhere: true},
		"ready, on two nodes":              {[]string{"1 @here", "2 @there"}, "1 2", "1", false},
		"sorted by address":                {[]string{"9", "10", "2"}, "2 9 10", "", false},
		"unready ones are left out":        {[]string{"1 @here unready", "2 @there"}, "2", "", false},
		"only unready":                     {[]string{"1 @here unready"}, "", "", true},
		"draining is no match for ready":   {[]string{"1 @here draining", "2 @there"}, "2", "1", false},
		"local drains while others serve":  {[]string{"1 @here draining", "2 @here", "3 @there"}, "2 3", "2", false},
		"all drain":                        {[]string{"1 @here draining", "2 @there draining", "3 ending"}, "1 2", "1", false},
		"ending does not serve":            {[]string{"1 @here ending"}, "", "", true},
		"zone":                             {[]string{"1 zone=a", "2 zone=b", "3 zone=a"}, "1 3", "", false},
		"zone without an endpoint":         {[]string{"1 zone=b", "2 zone=c"}, "1 2", "", false},
		"zone, but one without hint":       {[]string{"1 zone=a", "2"}, "1 2", "", false},
		"zone, the one without is unready": {[]string{"1 zone=a", "2 unready", "3 zone=b"}, "1", "", false},
		"node":                             {[]string{"1 node=here", "2 node=there"}, "1", "", false},
		"node without an endpoint":         {[]string{"1 node=there", "2 node=else"}, "1 2", "", false},
		"hints do not matter to Local":     {[]string{"1 zone=b @here", "2 zone=a @there"}, "2", "1", false},
	} {
		got := choose(v1.ServicePort{Name: "web", Protocol: v1.ProtocolTCP}, []*discoveryv1.EndpointSlice{parse(t, tt.endpoints...)}, families[0], here)
		if lastBytes(got.cluster) != tt.cluster || lastBytes(got.local) != tt.local || got.anywhere == tt.nowhere {
			t.Errorf("%s: cluster %q, local %q, anywhere %t; want %q, %q, %t", name, lastBytes(got.cluster), lastBytes(got.local), got.anywhere, tt.cluster, tt.local, !tt.nowhere)
		}
	}
}

func TestChooseAmongSlices(t *testing.T) {
	web := v1.ServicePort{Name: "web", Protocol: v1.ProtocolTCP}
	other := parse(t, "5")
	other.Ports[0].Name = ptr.To("other")
	udp := parse(t, "6")
	udp.Ports[0].Protocol = ptr.To(v1.ProtocolUDP)
	fqdn := parse(t, "7")
	fqdn.AddressType = discoveryv1.AddressTypeFQDN
	high := parse(t, "1")
	high.Ports[0].Port = ptr.To(int32(8080))
	all := []*discoveryv1.EndpointSlice{parse(t, "1 unready", "2"), parse(t, "1"), other, udp, fqdn, high}
	got := choose(web, all, families[0], here)
	if want := []string{"10.0.0.1:80", "10.0.0.1:8080", "10.0.0.2:80"}; !slices.Equal(texts(got.cluster), want) {
		t.Errorf("got %v, want %v: other ports and families do not count, and an address that one slice calls ready is", got.cluster, want)
	}
}

func texts(all []netip.AddrPort) []string {
	var s []string
	for _, a := range all {
		s = append(s, a.String())
	}
	return s
}
