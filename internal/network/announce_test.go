// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/test/netns"
)

// An address of a pool is found by ARP from another machine, and only as long as a Service has it. Programs of the
// node do not answer there.
func TestPoolIsAnnounced(t *testing.T) {
	outside := netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	client, _, _ := start(t, netip.MustParsePrefix("192.0.2.96/28"))
	ctx := t.Context()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":2222")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	svc, err := client.CoreV1().Services("ns").Get(ctx, "svc", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	answers := func(want bool) {
		t.Helper()
		var got error
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
			if _, got = outside.Ask(t, "tcp", "192.0.2.100:80", 500*time.Millisecond); (got == nil) == want {
				return
			}
		}
		t.Fatalf("got %v; want an answer: %t", got, want)
	}
	answers(false)
	// The neighbour has learnt that the address is elsewhere.
	outside.Do(t, func() {
		if out, err := exec.Command("ip", "neigh", "replace", "192.0.2.100", "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	svc.Spec.Type = v1.ServiceTypeLoadBalancer
	svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.100"}}
	if _, err := client.CoreV1().Services("ns").Update(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	answers(true)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a neighbour with another entry found the address after %s", took)
	}
	if _, err := (*netns.Pod)(nil).Ask(t, "tcp", "192.0.2.100:80", time.Second); err != nil {
		t.Errorf("from the machine: %v", err)
	}
	if _, err := outside.Ask(t, "tcp", "192.0.2.100:2222", time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port of the machine, not of the Service: %v", err)
	}
	if out, err := exec.Command("ip", "link", "del", "kin-test-svc").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	answers(true)
	if err := client.CoreV1().Services("ns").Delete(ctx, "svc", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	answers(false)
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		out, _ := exec.CommandContext(context.Background(), "ip", "-4", "address", "show", "dev", "kin-test-svc").CombinedOutput()
		if !strings.Contains(string(out), "192.0.2.100") {
			return
		}
		if time.Since(began) > 5*time.Second {
			t.Fatalf("the address is still there: %s", out)
		}
	}
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
