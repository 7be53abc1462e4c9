// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// town has a Service of each kind.
func town() []metav1.Object {
	web := service("shop", "web", []string{"10.96.1.1", "fd00::1:1"}, port("http", corev1.ProtocolTCP, 80), port("dns", corev1.ProtocolUDP, 53))
	db := service("shop", "db", []string{"None"})
	bare := service("shop", "bare", []string{"None"})
	waiting := service("shop", "waiting", []string{"None"}, port("http", corev1.ProtocolTCP, 80))
	sql := []discoveryv1.EndpointPort{endpointPort("sql", 5432), endpointPort("admin", 8080)}
	return []metav1.Object{
		namespace("shop"), namespace("kube-system"), web, db, bare, waiting,
		service("kube-system", "kube-dns", []string{"10.96.0.10"}, port("dns", corev1.ProtocolUDP, 53)),
		service("gone", "web", []string{"10.96.1.9"}, port("http", corev1.ProtocolTCP, 80)),
		slice(web, "web-1", []discoveryv1.EndpointPort{endpointPort("http", 8080)}, endpoint("", nil, "10.244.0.9"), endpoint("", ptr.To(false), "10.244.0.8")),
		slice(db, "db-1", sql, endpoint("db-0", ptr.To(true), "10.244.0.5"), endpoint("db-1", ptr.To(false), "10.244.0.6")),
		slice(db, "db-2", sql, endpoint("db-0", ptr.To(true), "fd00::5"), endpoint("", ptr.To(true), "10.244.0.7")),
		slice(bare, "bare-1", nil, endpoint("", nil, "10.244.0.4")),
		slice(waiting, "waiting-1", sql, endpoint("w-0", ptr.To(false), "10.244.0.3")),
		external("shop", "self", "self.shop.svc.cluster.local"),
		external("shop", "inside", "Web.shop.svc.cluster.local"),
		external("shop", "nowhere", "none.shop.svc.cluster.local"),
		external("shop", "number", "192.0.2.1"),
	}
}

const soa = "cluster.local. 30 SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 30"

func TestZone(t *testing.T) {
	s := newServer(t, clock.RealClock{}, nil, town()...)
	nodata, missing := "nodata", "missing"
	for _, test := range []struct {
		name, rrtype  string
		answer, extra []string
		empty         string
	}{
		// ClusterIPs.
		{name: "web.shop.svc.cluster.local.", rrtype: "A", answer: []string{"web.shop.svc.cluster.local. 30 A 10.96.1.1"}},
		{name: "WEB.Shop.svc.Cluster.local.", rrtype: "A", answer: []string{"WEB.Shop.svc.Cluster.local. 30 A 10.96.1.1"}},
		{name: "web.shop.svc.cluster.local.", rrtype: "AAAA", answer: []string{"web.shop.svc.cluster.local. 30 AAAA fd00::1:1"}},
		{name: "kube-dns.kube-system.svc.cluster.local.", rrtype: "AAAA", empty: nodata},
		{name: "web.shop.svc.cluster.local.", rrtype: "MX", empty: nodata},
		{name: "web.shop.svc.cluster.local.", rrtype: "TXT", empty: nodata},
		{name: "web.shop.svc.cluster.local.", rrtype: "CNAME", empty: nodata},
		{name: "web.gone.svc.cluster.local.", rrtype: "A", empty: missing},
		{name: "none.shop.svc.cluster.local.", rrtype: "A", empty: missing},
		{name: "10-244-0-9.web.shop.svc.cluster.local.", rrtype: "A", answer: []string{"10-244-0-9.web.shop.svc.cluster.local. 30 A 10.244.0.9"}},
		{name: "10-244-0-8.web.shop.svc.cluster.local.", rrtype: "A", empty: missing},
		// Ports.
		{
			name: "_http._tcp.web.shop.svc.cluster.local.", rrtype: "SRV",
			answer: []string{"_http._tcp.web.shop.svc.cluster.local. 30 SRV 0 50 80 web.shop.svc.cluster.local."},
			extra:  []string{"web.shop.svc.cluster.local. 30 A 10.96.1.1", "web.shop.svc.cluster.local. 30 AAAA fd00::1:1"},
		},
		{name: "_HTTP._TCP.web.shop.svc.cluster.local.", rrtype: "A", answer: []string{"_HTTP._TCP.web.shop.svc.cluster.local. 30 A 10.96.1.1"}},
		{name: "_http._udp.web.shop.svc.cluster.local.", rrtype: "SRV", empty: missing},
		{name: "http.tcp.web.shop.svc.cluster.local.", rrtype: "SRV", empty: missing},
		{
			name: "_sql._tcp.db.shop.svc.cluster.local.", rrtype: "SRV",
			answer: []string{
				"_sql._tcp.db.shop.svc.cluster.local. 30 SRV 0 33 5432 10-244-0-7.db.shop.svc.cluster.local.",
				"_sql._tcp.db.shop.svc.cluster.local. 30 SRV 0 33 5432 db-0.db.shop.svc.cluster.local.",
			},
			extra: []string{
				"10-244-0-7.db.shop.svc.cluster.local. 30 A 10.244.0.7",
				"db-0.db.shop.svc.cluster.local. 30 A 10.244.0.5", "db-0.db.shop.svc.cluster.local. 30 AAAA fd00::5",
			},
		},
		// Headless Services.
		{name: "db.shop.svc.cluster.local.", rrtype: "A", answer: []string{"db.shop.svc.cluster.local. 30 A 10.244.0.5", "db.shop.svc.cluster.local. 30 A 10.244.0.7"}},
		{name: "db-0.db.shop.svc.cluster.local.", rrtype: "A", answer: []string{"db-0.db.shop.svc.cluster.local. 30 A 10.244.0.5"}},
		{name: "db-0.db.shop.svc.cluster.local.", rrtype: "AAAA", answer: []string{"db-0.db.shop.svc.cluster.local. 30 AAAA fd00::5"}},
		{name: "db-1.db.shop.svc.cluster.local.", rrtype: "A", empty: missing},
		{name: "bare.shop.svc.cluster.local.", rrtype: "A", answer: []string{"bare.shop.svc.cluster.local. 30 A 10.244.0.4"}},
		{name: "bare.shop.svc.cluster.local.", rrtype: "SRV", empty: nodata},
		{name: "waiting.shop.svc.cluster.local.", rrtype: "A", empty: missing},
		// ExternalName.
		{name: "inside.shop.svc.cluster.local.", rrtype: "CNAME", answer: []string{"inside.shop.svc.cluster.local. 30 CNAME web.shop.svc.cluster.local."}},
		{name: "inside.shop.svc.cluster.local.", rrtype: "A", answer: []string{"inside.shop.svc.cluster.local. 30 CNAME web.shop.svc.cluster.local.", "web.shop.svc.cluster.local. 30 A 10.96.1.1"}},
		{name: "number.shop.svc.cluster.local.", rrtype: "A", empty: missing},
		{name: "a.inside.shop.svc.cluster.local.", rrtype: "A", empty: missing},
		// Pods.
		{name: "10-244-0-77.shop.pod.cluster.local.", rrtype: "A", answer: []string{"10-244-0-77.shop.pod.cluster.local. 30 A 10.244.0.77"}},
		{name: "fd00--5.shop.pod.cluster.local.", rrtype: "AAAA", answer: []string{"fd00--5.shop.pod.cluster.local. 30 AAAA fd00::5"}},
		{name: "fd00--5.shop.pod.cluster.local.", rrtype: "A", empty: nodata},
		{name: "10-244-0-77.gone.pod.cluster.local.", rrtype: "A", empty: missing},
		{name: "db-0.shop.pod.cluster.local.", rrtype: "A", empty: missing},
		{name: "a.10-244-0-77.shop.pod.cluster.local.", rrtype: "A", empty: missing},
		// Names between.
		{name: "cluster.local.", rrtype: "A", empty: nodata},
		{name: "svc.cluster.local.", rrtype: "A", empty: nodata},
		{name: "shop.svc.cluster.local.", rrtype: "A", empty: nodata},
		{name: "gone.svc.cluster.local.", rrtype: "A", empty: missing},
		{name: "other.cluster.local.", rrtype: "A", empty: missing},
		{name: "a.b.c.web.shop.svc.cluster.local.", rrtype: "A", empty: missing},
		// The zone itself.
		{name: "cluster.local.", rrtype: "SOA", answer: []string{soa}},
		{name: "cluster.local.", rrtype: "NS", answer: []string{"cluster.local. 30 NS ns.dns.cluster.local."}, extra: []string{"ns.dns.cluster.local. 30 A 10.96.0.10"}},
		{name: "ns.dns.cluster.local.", rrtype: "A", answer: []string{"ns.dns.cluster.local. 30 A 10.96.0.10"}},
		{name: "dns-version.cluster.local.", rrtype: "TXT", answer: []string{`dns-version.cluster.local. 28800 TXT "1.1.0"`}},
		{name: "dns-version.cluster.local.", rrtype: "A", empty: nodata},
		// Addresses.
		{name: "1.1.96.10.in-addr.arpa.", rrtype: "PTR", answer: []string{"1.1.96.10.in-addr.arpa. 30 PTR web.shop.svc.cluster.local."}},
		{name: "5.0.244.10.in-addr.arpa.", rrtype: "PTR", answer: []string{"5.0.244.10.in-addr.arpa. 30 PTR db-0.db.shop.svc.cluster.local."}},
		{name: "9.0.244.10.IN-ADDR.arpa.", rrtype: "PTR", answer: []string{"9.0.244.10.IN-ADDR.arpa. 30 PTR 10-244-0-9.web.shop.svc.cluster.local."}},
		{
			name: "5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", rrtype: "PTR",
			answer: []string{"5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. 30 PTR db-0.db.shop.svc.cluster.local."},
		},
	} {
		t.Run(test.rrtype+" "+test.name, func(t *testing.T) {
			reply := s.reply(t.Context(), query(test.name, test.rrtype))
			wantCode, wantSOA := dns.RcodeSuccess, []string{}
			if test.empty != "" {
				wantSOA = []string{soa}
			}
			if test.empty == missing {
				wantCode = dns.RcodeNameError
			}
			if !reply.Authoritative || reply.Rcode != wantCode {
				t.Errorf("rcode %s, authoritative %v", dns.RcodeToString[reply.Rcode], reply.Authoritative)
			}
			slices.Sort(test.answer)
			for _, section := range []struct{ got, want []string }{
				{printed(reply.Answer), test.answer}, {printed(reply.Ns), wantSOA}, {printed(reply.Extra), test.extra},
			} {
				if !slices.Equal(section.got, section.want) {
					t.Errorf("(-want +got):\n%s", cmp.Diff(section.want, section.got))
				}
			}
		})
	}
}

// TestAliases: ExternalNames that form a cycle end, and those without a target say so.
func TestAliases(t *testing.T) {
	s := newServer(t, clock.RealClock{}, nil, town()...)
	if reply := s.reply(t.Context(), query("self.shop.svc.cluster.local.", "A")); reply.Rcode != dns.RcodeServerFailure || len(reply.Answer) > 0 {
		t.Errorf("a cycle: %v", reply)
	}
	reply := s.reply(t.Context(), query("nowhere.shop.svc.cluster.local.", "A"))
	want := []string{"nowhere.shop.svc.cluster.local. 30 CNAME none.shop.svc.cluster.local."}
	if reply.Rcode != dns.RcodeNameError || !slices.Equal(printed(reply.Answer), want) || !slices.Equal(printed(reply.Ns), []string{soa}) {
		t.Errorf("a target that does not exist: %v", reply)
	}
}

// TestUnsynced: without objects, a name is not denied.
func TestUnsynced(t *testing.T) {
	s := newServer(t, clock.RealClock{}, nil)
	s.zone.records.synced = append(s.zone.records.synced, func() bool { return false })
	for name, rrtype := range map[string]string{"web.shop.svc.cluster.local.": "A", "1.1.96.10.in-addr.arpa.": "PTR"} {
		if reply := s.reply(t.Context(), query(name, rrtype)); reply.Rcode != dns.RcodeServerFailure {
			t.Error(reply)
		}
	}
}

// TestChanges: the indexes follow changes of the objects.
func TestChanges(t *testing.T) {
	s := newServer(t, clock.RealClock{}, nil, town()...)
	moved := service("shop", "web", []string{"10.96.1.2"}, port("http", corev1.ProtocolTCP, 80))
	if err := s.zone.records.services.Update(moved); err != nil {
		t.Fatal(err)
	}
	if got := printed(s.reply(t.Context(), query("web.shop.svc.cluster.local.", "A")).Answer); !slices.Equal(got, []string{"web.shop.svc.cluster.local. 30 A 10.96.1.2"}) {
		t.Error(got)
	}
	if names := s.zone.hosts(addr("10.96.1.1")); len(names) != 0 {
		t.Errorf("the old address still has the names %v", names)
	}
	if err := s.zone.records.services.Delete(moved); err != nil {
		t.Fatal(err)
	}
	if reply := s.reply(t.Context(), query("web.shop.svc.cluster.local.", "A")); reply.Rcode != dns.RcodeNameError {
		t.Errorf("deleted: %v", reply)
	}
}
