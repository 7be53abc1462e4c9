// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kindred-project/kindred/test/netns"
)

// An address of a pool is found by ARP or NDP from another machine, and only as long as a Service has it. Programs of the
// node do not answer there.
func TestPoolIsAnnounced(t *testing.T) {
	for _, tt := range []struct{ family, outside, pool, service, address string }{
		{"-4", "192.0.2.1/24", "192.0.2.96/28", "svc", "192.0.2.100"},
		{"-6", "2001:db8::1/64", "2001:db8::100/120", "svc6", "2001:db8::101"},
	} {
		t.Run(tt.address, func(t *testing.T) {
			outside := netns.NewMachine(t, "outside", netip.MustParsePrefix(tt.outside))
			if tt.family == "-6" {
				command(t, "sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=1")
			}
			client, _, _ := start(t, netip.MustParsePrefix(tt.pool))
			ctx := t.Context()
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":2222")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			svc, err := client.CoreV1().Services("ns").Get(ctx, tt.service, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			address := net.JoinHostPort(tt.address, "80")
			answers := func(want bool) {
				t.Helper()
				var got error
				for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
					if _, got = outside.Ask(t, "tcp", address, 500*time.Millisecond); (got == nil) == want {
						return
					}
				}
				t.Fatalf("got %v; want an answer: %t", got, want)
			}
			answers(false)
			// The neighbour has learnt that the address is elsewhere.
			outside.Do(t, func() {
				command(t, "ip", "neigh", "replace", tt.address, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale")
			})
			svc.Spec.Type = v1.ServiceTypeLoadBalancer
			svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: tt.address}}
			if _, err := client.CoreV1().Services("ns").Update(ctx, svc, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			answers(true)
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("a neighbour with another entry found the address after %s", took)
			}
			outside.Do(t, func() { command(t, "ip", "neigh", "flush", "dev", "eth0") })
			answers(true)
			if _, err := (*netns.Pod)(nil).Ask(t, "tcp", address, time.Second); err != nil {
				t.Errorf("from the machine: %v", err)
			}
			if _, err := outside.Ask(t, "tcp", net.JoinHostPort(tt.address, "2222"), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a port of the machine, not of the Service: %v", err)
			}
			command(t, "ip", "link", "del", "kin-test-svc")
			answers(true)
			if err := client.CoreV1().Services("ns").Delete(ctx, tt.service, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			answers(false)
			for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
				left := command(t, "sh", "-c", "ip address show dev kin-test-svc; ip -6 neigh show proxy")
				if !strings.Contains(left, tt.address) {
					return
				}
				if time.Since(began) > 5*time.Second {
					t.Fatalf("the address is still there: %s", left)
				}
			}
		})
	}
}

// command runs a program and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestElect(t *testing.T) {
	if got := elect(netip.MustParseAddr("192.0.2.1"), nil); got != "" {
		t.Errorf("no candidates: %q", got)
	}
	names := []string{"a", "b", "c"}
	count := map[string]int{}
	for a := netip.MustParseAddr("192.0.2.0"); a.As4()[3] < 200; a = a.Next() {
		winner := elect(a, names)
		count[winner]++
		if again := elect(a, []string{"c", "a", "b"}); again != winner {
			t.Errorf("%s: %s or %s, by the order of the candidates", a, winner, again)
		}
		for _, gone := range names {
			left := keepNodes(names, func(n string) bool { return n != gone })
			if now := elect(a, left); gone != winner && now != winner {
				t.Errorf("%s moves from %s to %s when %s goes", a, winner, now, gone)
			}
		}
	}
	for _, name := range names {
		if count[name] < 40 {
			t.Errorf("%s has %d of 200 addresses", name, count[name])
		}
	}
}

// TestElected: an address is announced by one of the nodes whose machines have its pool, and all of them know which.
func TestElected(t *testing.T) {
	pools := map[string]string{"a": "192.0.2.0/28", "b": "192.0.2.0/28,198.51.100.0/28", "c": "198.51.100.0/28", "d": "", "e": "not a pool"}
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	for name, text := range pools {
		_ = f.Core().V1().Nodes().Informer().GetIndexer().Add(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{PoolsAnnotation: text}},
			Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
		})
	}
	balancers := map[string]*v1.Service{}
	for _, network := range []string{"192.0.2.", "198.51.100.", "203.0.113."} {
		for i := range 16 {
			svc := &v1.Service{}
			svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: fmt.Sprint(network, i)}}
			balancers["ns/"+svc.Status.LoadBalancer.Ingress[0].IP] = svc
		}
	}
	announcedBy := map[netip.Addr][]string{}
	for name, text := range pools {
		own := poolsOf(&v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{PoolsAnnotation: text}}})
		n := &Network{options: Options{Node: name, Simulated: "simulated", Informers: f, Pools: own}, balancers: balancers}
		for _, a := range n.elected() {
			announcedBy[a] = append(announcedBy[a], name)
		}
	}
	for _, svc := range balancers {
		a := netip.MustParseAddr(svc.Status.LoadBalancer.Ingress[0].IP)
		able := map[byte][]string{192: {"a", "b"}, 198: {"b", "c"}}[a.As4()[0]]
		by := announcedBy[a]
		if len(able) == 0 && len(by) > 0 || len(able) > 0 && (len(by) != 1 || !slices.Contains(able, by[0])) {
			t.Errorf("%s is announced by %v, and %v can", a, by, able)
		}
	}
}
