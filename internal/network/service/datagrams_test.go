// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// TestDatagrams: open flows stay with all endpoints that serve, which are more than new flows go to.
func TestDatagrams(t *testing.T) {
	svc := &v1.Service{Spec: v1.ServiceSpec{
		Type: v1.ServiceTypeNodePort, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, ExternalIPs: []string{"192.0.2.1"},
		ExternalTrafficPolicy: v1.ServiceExternalTrafficPolicyLocal, InternalTrafficPolicy: ptr.To(v1.ServiceInternalTrafficPolicyLocal),
		Ports: []v1.ServicePort{
			{Name: "dns", Protocol: v1.ProtocolUDP, Port: 53, NodePort: 30053},
			{Name: "tcp", Protocol: v1.ProtocolTCP, Port: 53, NodePort: 30054},
		},
	}}
	slice := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Protocol: ptr.To(v1.ProtocolUDP), Port: ptr.To(int32(5353))}},
	}
	for _, e := range []struct {
		address, node         string
		ready, serving, going bool
	}{
		{"10.244.0.2", "here", true, true, false},
		{"10.244.0.3", "here", false, true, true},
		{"10.244.1.2", "elsewhere", true, true, false},
		{"10.244.0.4", "here", false, false, false},
		{"10.244.0.5", "here", false, false, true},
	} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{e.address}, NodeName: &e.node,
			Conditions: discoveryv1.EndpointConditions{Ready: &e.ready, Serving: &e.serving, Terminating: &e.going},
		})
	}
	want := []netip.AddrPort{
		netip.MustParseAddrPort("10.244.0.2:5353"), netip.MustParseAddrPort("10.244.0.3:5353"), netip.MustParseAddrPort("10.244.1.2:5353"),
	}
	var to []string
	for _, d := range DatagramsOf(svc, []*discoveryv1.EndpointSlice{slice}, Node{Name: "here"}) {
		to = append(to, fmt.Sprint(d.To, " ", d.Port))
		if !slices.Equal(d.Endpoints, want) {
			t.Errorf("%v %d: %v, want %v", d.To, d.Port, d.Endpoints, want)
		}
	}
	if want := []string{"10.96.0.1 53", "192.0.2.1 53", "invalid IP 30053"}; !slices.Equal(to, want) {
		t.Errorf("flows to %v, want %v", to, want)
	}
	slice.Endpoints = slice.Endpoints[3:]
	if got := DatagramsOf(svc, []*discoveryv1.EndpointSlice{slice}, Node{Name: "here"}); len(got) > 0 {
		t.Errorf("without endpoints that serve: %v", got)
	}
}
