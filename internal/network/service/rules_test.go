// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// text returns a fragment line by line, sorted.
func text(f nft.Fragment) string {
	var lines []string
	for name, c := range f.Chains {
		lines = append(lines, fmt.Sprintf("chain %s: %s", name, strings.Join(c.Rules, "; ")))
	}
	for name, s := range f.Sets {
		lines = append(lines, fmt.Sprintf("set %s: %s%s", name, s.Type, s.TypeOf))
	}
	for e, value := range f.Elements {
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s { %s : %s }", e.Set, e.Key, value), " :  }"))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func web(change func(*v1.Service)) *v1.Service {
	return newService(func(s *v1.Service) {
		s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
		s.Spec.Ports = s.Spec.Ports[:1]
		if change != nil {
			change(s)
		}
	})
}

func TestRules(t *testing.T) {
	for name, tt := range map[string]struct {
		svc       *v1.Service
		endpoints []string
		want      string
	}{
		"headless":          {svc: web(func(s *v1.Service) { s.Spec.ClusterIP = v1.ClusterIPNone })},
		"ExternalName":      {svc: web(func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeExternalName })},
		"of another proxy":  {svc: web(func(s *v1.Service) { s.Labels = map[string]string{proxyNameLabel: "other"} })},
		"without endpoints": {svc: web(nil), want: "cluster-ips4 { 10.96.0.1\nno-endpoints4 { 10.96.0.1 . 6 . 80 : goto refuse }\n"},
		"of a Gateway, whose address is the reverse proxy's": {
			svc: web(func(s *v1.Service) {
				s.Spec.Type, s.Spec.LoadBalancerClass = v1.ServiceTypeLoadBalancer, ptr.To(gatewayClass)
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "198.51.100.1"}}
			}),
			want: "cluster-ips4 { 10.96.0.1\nno-endpoints4 { 10.96.0.1 . 6 . 80 : goto refuse }\n",
		},
		"internal policy Local, endpoint elsewhere": {
			svc:       web(func(s *v1.Service) { s.Spec.InternalTrafficPolicy = ptr.To(v1.ServiceInternalTrafficPolicyLocal) }),
			endpoints: []string{"1 @there"},
			want:      "cluster-ips4 { 10.96.0.1\nno-endpoints4 { 10.96.0.1 . 6 . 80 : drop }\n",
		},
		"two endpoints, one here": {
			svc: web(nil), endpoints: []string{"1 @here", "2 @there"},
			want: `
chain endpoint4-0: dnat ip to ip daddr . meta l4proto . th dport map @endpoints4-0
chain endpoint4-1: dnat ip to ip daddr . meta l4proto . th dport map @endpoints4-1
chain pick4-2: numgen random mod 2 vmap { 0 : goto endpoint4-0, 1 : goto endpoint4-1 }
cluster-ips4 { 10.96.0.1
endpoints4-0 { 10.96.0.1 . 6 . 80 : 10.0.0.1 . 80 }
endpoints4-1 { 10.96.0.1 . 6 . 80 : 10.0.0.2 . 80 }
entries4 { 10.96.0.1 . 6 . 80 : goto pick4-2 }
hairpin4 { 10.0.0.1 . 10.0.0.1
set endpoints4-0: ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
set endpoints4-1: ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
`,
		},
		"node port": {
			svc: web(func(s *v1.Service) {
				s.Spec.Type, s.Spec.Ports[0].NodePort = v1.ServiceTypeNodePort, 30080
			}),
			endpoints: []string{"1 @there"},
			want: `
chain endpoint4-0: dnat ip to ip daddr . meta l4proto . th dport map @endpoints4-0
chain masquerade-nodeport-endpoint4-0: meta mark set meta mark or 0x4000; goto nodeport-endpoint4-0
chain nodeport-endpoint4-0: dnat ip to meta l4proto . th dport map @nodeport-endpoints4-0
cluster-ips4 { 10.96.0.1
endpoints4-0 { 10.96.0.1 . 6 . 80 : 10.0.0.1 . 80 }
entries4 { 10.96.0.1 . 6 . 80 : goto endpoint4-0 }
nodeport-endpoints4-0 { 6 . 30080 : 10.0.0.1 . 80 }
nodeports4 { 6 . 30080 : goto masquerade-nodeport-endpoint4-0 }
set endpoints4-0: ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
set nodeport-endpoints4-0: inet_proto . inet_service : ipv4_addr . inet_service
`,
		},
		"load balancer, policy Local, endpoint elsewhere, source ranges": {
			svc: web(func(s *v1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = v1.ServiceTypeLoadBalancer, v1.ServiceExternalTrafficPolicyLocal
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "2001:db8::/32"}
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "198.51.100.1"}, {Hostname: "x.example"}, {IP: "198.51.100.2", IPMode: ptr.To(v1.LoadBalancerIPModeProxy)}}
			}),
			endpoints: []string{"1 @there"},
			want: `
chain endpoint4-0: dnat ip to ip daddr . meta l4proto . th dport map @endpoints4-0
chain firewall4-FIREWALL: ip saddr 192.0.2.0/24 return; ip saddr 198.51.100.1 return; drop
cluster-ips4 { 10.96.0.1
endpoints4-0 { 10.96.0.1 . 6 . 80 : 10.0.0.1 . 80 }
endpoints4-0 { 198.51.100.1 . 6 . 80 : 10.0.0.1 . 80 }
entries4 { 10.96.0.1 . 6 . 80 : goto endpoint4-0 }
firewall4 { 198.51.100.1 . 6 . 80 : goto firewall4-FIREWALL }
internal4 { 198.51.100.1 . 6 . 80 : goto endpoint4-0 }
no-endpoints4 { 198.51.100.1 . 6 . 80 : drop }
set endpoints4-0: ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
`,
		},
		"session affinity": {
			svc:       web(func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }),
			endpoints: []string{"1 @there", "2 @there"},
			want: `
chain affinity4-ID-10.0.0.1-80: update @affinity4-ID-10.0.0.1-80 { ip saddr }; meta l4proto 6 dnat ip to 10.0.0.1:80
chain affinity4-ID-10.0.0.2-80: update @affinity4-ID-10.0.0.2-80 { ip saddr }; meta l4proto 6 dnat ip to 10.0.0.2:80
chain affinity4-ID: ip saddr @affinity4-ID-10.0.0.1-80 goto affinity4-ID-10.0.0.1-80; ip saddr @affinity4-ID-10.0.0.2-80 goto affinity4-ID-10.0.0.2-80; numgen random mod 2 vmap { 0 : goto affinity4-ID-10.0.0.1-80, 1 : goto affinity4-ID-10.0.0.2-80 }
cluster-ips4 { 10.96.0.1
entries4 { 10.96.0.1 . 6 . 80 : goto affinity4-ID }
set affinity4-ID-10.0.0.1-80: ipv4_addr
set affinity4-ID-10.0.0.2-80: ipv4_addr
`,
		},
	} {
		p := portRules{svc: tt.svc, port: tt.svc.Spec.Ports[0], family: families[0]}
		names := strings.NewReplacer(p.unique("firewall"), "firewall4-FIREWALL", p.affinityName(), "affinity4-ID")
		got := names.Replace(text(Rules(tt.svc, []*discoveryv1.EndpointSlice{parse(t, tt.endpoints...)}, here)))
		want := strings.TrimPrefix(tt.want, "\n")
		if want == "" {
			want = "\n"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAffinityHasItsOwnSetForEachTimeout(t *testing.T) {
	p := portRules{svc: web(nil), port: web(nil).Spec.Ports[0], family: families[0]}
	before := p.affinityName()
	p.svc.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(5))}}
	if p.affinityName() == before {
		t.Error("the timeout of a set cannot be changed, so another timeout needs another set")
	}
}
