// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }

// bed is a node with three pods and another machine, in namespaces.
type bed struct {
	*testing.T
	table   *nft.Table
	bridge  *netns.Bridge
	pods    []*netns.Pod
	outside *netns.Pod
}

var here = Node{Name: "here", Zone: "a"}

// newBed creates a node whose pods 0 and 1 serve on port 8080 as "pod0" and "pod1"; pod 2 is a client.
func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, bridge: netns.NewBridge(t, "kin-test", netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64"))}
	write := func(file, value string) {
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("/proc/sys/net/ipv4/conf/kin-test/route_localnet", "1")
	for range 3 {
		b.pods = append(b.pods, b.bridge.Pod(t))
	}
	b.pods[0].Serve(t, "pod0", 8080)
	b.pods[1].Serve(t, "pod1", 8080)
	b.outside = netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	// As on a real node: the interface is not the bridge, so that pods are not redirected to their own network.
	netns.NewMachine(t, "kin-test-svc", netip.MustParsePrefix("203.0.113.1/24"))
	b.route("10.96.0.0/16")
	b.route("fd00:96::/112")
	// External addresses are on the network of the other machine, as behind a default route.
	if err := netns.Route("198.51.100.0/24", "outside"); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.table, err = nft.Open("kindred-test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.table.Delete(context.Background()) })
	b.table.Put("", Base(Config{
		Bridge: "kin-test", Link: "kin-test-svc", Clusters: "kin-*",
		PodRanges:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64")},
		ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
	}))
	return b
}

// route gives the node a route to a range of Services.
func (b *bed) route(prefix string) {
	b.Helper()
	if err := netns.Route(prefix, "kin-test-svc"); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) put(svc *v1.Service, slices ...*discoveryv1.EndpointSlice) {
	b.Helper()
	b.table.Put(svc.Namespace+"/"+svc.Name, Rules(svc, slices, here))
	if refused, err := b.table.Write(context.Background()); err != nil || len(refused) > 0 {
		b.Fatal(refused, err)
	}
}

// slice returns a slice with the addresses of pods, all on this node.
func (b *bed) slice(f family, change func(*discoveryv1.Endpoint), pods ...int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{AddressType: f.slices, Ports: []discoveryv1.EndpointPort{
		{Name: ptr.To("web"), Port: ptr.To(int32(8080)), Protocol: ptr.To(v1.ProtocolTCP)},
		{Name: ptr.To("dns"), Port: ptr.To(int32(8080)), Protocol: ptr.To(v1.ProtocolUDP)},
	}}
	at := 0
	if !f.is4 {
		at = 1
	}
	for _, pod := range pods {
		e := discoveryv1.Endpoint{Addresses: []string{b.pods[pod].Addresses[at].String()}, NodeName: ptr.To("here")}
		if change != nil {
			change(&e)
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return slice
}

func newService(change func(*v1.Service)) *v1.Service {
	svc := &v1.Service{Spec: v1.ServiceSpec{
		Type: v1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00:96::1"},
		Ports: []v1.ServicePort{
			{Name: "web", Protocol: v1.ProtocolTCP, Port: 80},
			{Name: "dns", Protocol: v1.ProtocolUDP, Port: 53},
		},
	}}
	svc.Namespace, svc.Name = "ns", "svc"
	if change != nil {
		change(svc)
	}
	return svc
}

// answers asks several times and returns which answers came, without the clients' addresses, and the last
// client's address.
func (b *bed) answers(from *netns.Pod, network, address string) (map[string]bool, string) {
	b.Helper()
	got, client := map[string]bool{}, ""
	for range 24 {
		answer, err := from.Ask(b.T, network, address, 2*time.Second)
		if err != nil {
			// If no pod has refused the packet, the rules have.
			b.Fatalf("%s %s: %v\npod0: %s\npod1: %s", network, address, err, b.pods[0].UDPErrors(b.T), b.pods[1].UDPErrors(b.T))
		}
		name, c, _ := strings.Cut(answer, " ")
		got[name], client = true, c
	}
	return got, client
}

func (b *bed) wantAnswers(from *netns.Pod, network, address string, want ...string) string {
	b.Helper()
	got, client := b.answers(from, network, address)
	if len(got) != len(want) {
		b.Errorf("%s %s: answers of %v, want %v", network, address, got, want)
	}
	for _, name := range want {
		if !got[name] {
			b.Errorf("%s %s: answers of %v, want %v", network, address, got, want)
		}
	}
	return client
}

func (b *bed) wantRefused(from *netns.Pod, network, address string) {
	b.Helper()
	began := time.Now()
	answer, err := from.Ask(b.T, network, address, 2*time.Second)
	// A rejected packet of the node itself is not permitted.
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EPERM) || time.Since(began) > time.Second {
		b.Errorf("%s %s: got %q, %v after %s; want it refused at once", network, address, answer, err, time.Since(began))
	}
}

func (b *bed) wantDropped(from *netns.Pod, network, address string) {
	b.Helper()
	answer, err := from.Ask(b.T, network, address, 300*time.Millisecond)
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
		b.Errorf("%s %s: got %q, %v; want no answer", network, address, answer, err)
	}
}

func TestClusterIP(t *testing.T) {
	b := newBed(t)
	svc := newService(nil)
	b.put(svc, b.slice(families[0], nil, 0, 1), b.slice(families[1], nil, 0, 1))
	for _, from := range []*netns.Pod{b.pods[2], nil} {
		b.wantAnswers(from, "tcp", "10.96.0.1:80", "pod0", "pod1")
		b.wantAnswers(from, "udp", "10.96.0.1:53", "pod0", "pod1")
		b.wantAnswers(from, "tcp", "[fd00:96::1]:80", "pod0", "pod1")
		b.wantAnswers(from, "udp", "[fd00:96::1]:53", "pod0", "pod1")
		b.wantRefused(from, "tcp", "10.96.0.1:81")
		b.wantRefused(from, "udp", "10.96.0.1:80")
		b.wantRefused(from, "tcp", "[fd00:96::1]:81")
		b.wantDropped(from, "tcp", "10.96.0.2:80")
		b.wantDropped(from, "tcp", "[fd00:96::2]:80")
	}
	if client := b.wantAnswers(b.pods[2], "tcp", "10.96.0.1:80", "pod0", "pod1"); client != b.pods[2].Addresses[0].String() {
		t.Errorf("the endpoint sees %s, want the client pod", client)
	}
	b.put(svc, b.slice(families[0], nil, 1))
	b.wantAnswers(b.pods[2], "tcp", "10.96.0.1:80", "pod1")
	b.wantRefused(b.pods[2], "tcp", "[fd00:96::1]:80")
	b.put(svc)
	b.wantRefused(b.pods[2], "tcp", "10.96.0.1:80")
	b.wantRefused(nil, "tcp", "10.96.0.1:80")
	b.wantRefused(nil, "udp", "10.96.0.1:53")
}

func TestHairpin(t *testing.T) {
	b := newBed(t)
	b.put(newService(nil), b.slice(families[0], nil, 0), b.slice(families[1], nil, 0))
	b.wantAnswers(b.pods[0], "tcp", "10.96.0.1:80", "pod0")
	b.wantAnswers(b.pods[0], "udp", "10.96.0.1:53", "pod0")
	b.wantAnswers(b.pods[0], "tcp", "[fd00:96::1]:80", "pod0")
}

func TestNodePort(t *testing.T) {
	b := newBed(t)
	svc := newService(func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30080, 30053
	})
	slice := b.slice(families[0], nil, 0, 1)
	b.put(svc, slice)
	for _, address := range []string{"192.0.2.2", "10.244.0.1"} {
		for _, from := range []*netns.Pod{b.outside, b.pods[2], b.pods[0], nil} {
			b.wantAnswers(from, "tcp", address+":30080", "pod0", "pod1")
			b.wantAnswers(from, "udp", address+":30053", "pod0", "pod1")
		}
	}
	b.wantAnswers(nil, "tcp", "127.0.0.1:30080", "pod0", "pod1")
	if client := b.wantAnswers(b.outside, "tcp", "192.0.2.2:30080", "pod0", "pod1"); client == "192.0.2.1" {
		t.Error("policy Cluster: the client's address is kept, and answers of endpoints on other nodes would not come back here")
	}
	b.put(svc)
	b.wantRefused(b.outside, "tcp", "192.0.2.2:30080")
	b.wantRefused(nil, "tcp", "192.0.2.2:30080")
}

func TestExternalTrafficPolicyLocal(t *testing.T) {
	b := newBed(t)
	svc := newService(func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeLoadBalancer
		s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
		s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30080, 30053
		s.Spec.ExternalIPs = []string{"198.51.100.1"}
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "198.51.100.2"}, {IP: "198.51.100.3", IPMode: ptr.To(v1.LoadBalancerIPModeProxy)}}
	})
	elsewhere := b.slice(families[0], func(e *discoveryv1.Endpoint) { e.NodeName = ptr.To("elsewhere") }, 1)
	b.put(svc, b.slice(families[0], nil, 0), elsewhere)
	for _, address := range []string{"192.0.2.2:30080", "198.51.100.1:80", "198.51.100.2:80"} {
		if client := b.wantAnswers(b.outside, "tcp", address, "pod0"); client != "192.0.2.1" {
			t.Errorf("%s: the endpoint sees %s, want the client", address, client)
		}
		b.wantAnswers(b.pods[2], "tcp", address, "pod0", "pod1")
	}
	b.put(svc, elsewhere)
	for _, address := range []string{"192.0.2.2:30080", "198.51.100.1:80", "198.51.100.2:80"} {
		b.wantDropped(b.outside, "tcp", address)
		b.wantAnswers(b.pods[2], "tcp", address, "pod1")
	}
	b.put(svc)
	b.wantRefused(b.outside, "tcp", "198.51.100.2:80")
}

func TestLoadBalancerSourceRanges(t *testing.T) {
	b := newBed(t)
	svc := newService(func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeLoadBalancer
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "198.51.100.2"}}
	})
	b.put(svc, b.slice(families[0], nil, 0))
	b.wantAnswers(b.outside, "tcp", "198.51.100.2:80", "pod0")
	b.wantDropped(b.pods[2], "tcp", "198.51.100.2:80")
	b.wantAnswers(b.pods[2], "tcp", "10.96.0.1:80", "pod0")
}

// The address of a load balancer is the node's own, as on bare machines without a pool.
func TestLoadBalancerAtTheNodesAddress(t *testing.T) {
	b := newBed(t)
	svc := newService(func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeLoadBalancer
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.2"}}
	})
	b.put(svc, b.slice(families[0], nil, 0, 1))
	for _, from := range []*netns.Pod{b.outside, b.pods[2], b.pods[0], nil} {
		b.wantAnswers(from, "tcp", "192.0.2.2:80", "pod0", "pod1")
		b.wantAnswers(from, "udp", "192.0.2.2:53", "pod0", "pod1")
	}
	b.put(newService(nil))
	b.wantRefused(b.outside, "tcp", "192.0.2.2:80")
}

func TestSessionAffinity(t *testing.T) {
	b := newBed(t)
	svc := newService(func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = 30080
		s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(1))}}
	})
	slice := b.slice(families[0], nil, 0, 1)
	b.put(svc, slice)
	first, _ := b.answers(b.pods[2], "tcp", "10.96.0.1:80")
	if len(first) != 1 {
		t.Fatalf("one client got answers of %v", first)
	}
	// A new process replaces the table.
	b.table.Forget()
	b.put(svc, slice)
	if again, _ := b.answers(b.pods[2], "tcp", "10.96.0.1:80"); len(again) != 1 || !sameKeys(first, again) {
		t.Errorf("after a restart: %v, before %v", again, first)
	}
	if viaPort, _ := b.answers(b.pods[2], "tcp", "10.244.0.1:30080"); !sameKeys(first, viaPort) {
		t.Errorf("by the node port: %v, by the address %v", viaPort, first)
	}
	seen := map[string]bool{}
	for range 16 {
		time.Sleep(1300 * time.Millisecond)
		answer, err := b.pods[2].Ask(t, "tcp", "10.96.0.1:80", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if seen[answer] = true; len(seen) == 2 {
			return
		}
	}
	t.Errorf("after the timeout always the same endpoint: %v", seen)
}

func sameKeys(a, b map[string]bool) bool {
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestLoopbackIsClosedToPods(t *testing.T) {
	b := newBed(t)
	b.put(newService(nil))
	var err error
	b.pods[2].Do(t, func() { err = netns.Route("127.0.0.5/32", "eth0") })
	if err != nil {
		t.Fatal(err)
	}
	b.wantDropped(b.pods[2], "tcp", "127.0.0.5:22")
}

// Two clusters on one machine have the same ranges of Services. Each serves its own pods.
func TestTwoClusters(t *testing.T) {
	b := newBed(t)
	b.put(newService(nil), b.slice(families[0], nil, 0))
	bridge := netns.NewBridge(t, "kin-two", netip.MustParsePrefix("10.244.1.0/24"))
	server, client := bridge.Pod(t), bridge.Pod(t)
	server.Serve(t, "theirs", 8080)
	theirs, err := nft.Open("kindred-two")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Delete(context.Background()) })
	theirs.Put("", Base(Config{
		Bridge: "kin-two", Link: "kin-two-svc", Clusters: "kin-*",
		PodRanges:     []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
		ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}))
	slice := b.slice(families[0], nil, 0)
	slice.Endpoints[0].Addresses = []string{server.Addresses[0].String()}
	second := newService(func(s *v1.Service) {
		s.Name, s.Spec.ClusterIP, s.Spec.ClusterIPs = "second", "10.96.0.2", []string{"10.96.0.2"}
	})
	empty := newService(func(s *v1.Service) {
		s.Name, s.Spec.ClusterIP, s.Spec.ClusterIPs = "empty", "10.96.0.3", []string{"10.96.0.3"}
	})
	theirs.Put("ns/svc", Rules(newService(nil), []*discoveryv1.EndpointSlice{slice}, here))
	theirs.Put("ns/second", Rules(second, []*discoveryv1.EndpointSlice{slice}, here))
	theirs.Put("ns/empty", Rules(empty, nil, here))
	if refused, err := theirs.Write(context.Background()); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	b.wantAnswers(b.pods[2], "tcp", "10.96.0.1:80", "pod0")
	b.wantAnswers(client, "tcp", "10.96.0.1:80", "theirs")
	b.wantAnswers(client, "tcp", "10.96.0.2:80", "theirs")
	b.wantRefused(client, "tcp", "10.96.0.3:80")
	b.wantDropped(b.pods[2], "tcp", "10.96.0.2:80")
	b.wantAnswers(nil, "tcp", "10.96.0.1:80", "pod0") // the machine's route leads there
	if seen := b.wantAnswers(client, "udp", "10.96.0.1:53", "theirs"); seen != client.Addresses[0].String() {
		t.Errorf("the endpoint sees %s, want the client", seen)
	}
}
