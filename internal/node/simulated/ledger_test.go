// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func TestAddressesAreUnique(t *testing.T) {
	l := newLedger()
	shown := named("shown", "sim-0")
	shown.Status.PodIP = "198.18.128.2"
	l.observe(shown)
	seen := map[string]bool{"198.18.128.2": true}
	for i := range 1000 {
		uid := types.UID(fmt.Sprint(i))
		ip, err := l.address(uid)
		if err != nil {
			t.Fatal(err)
		}
		if seen[ip] {
			t.Fatalf("%s was given out twice", ip)
		}
		if nodeAddresses.Contains(netip.MustParseAddr(ip)) {
			t.Fatalf("%s is a node's", ip)
		}
		seen[ip] = true
		if again, _ := l.address(uid); again != ip {
			t.Fatalf("a pod has %s and %s", ip, again)
		}
	}
}

func TestAddressesRunOutAndComeBack(t *testing.T) {
	l := newLedger()
	last := ""
	for i := 0; ; i++ {
		ip, err := l.address(types.UID(fmt.Sprint(i)))
		if err != nil {
			if i != addressCount()-1 { // the very first address names the range
				t.Fatalf("%v after %d addresses, want %d", err, i, addressCount()-1)
			}
			break
		}
		last = ip
	}
	if last != "198.19.255.255" {
		t.Errorf("the last address is %s", last)
	}
	want, _ := l.address("77")
	l.release("77")
	got, err := l.address("late")
	if err != nil || got != want {
		t.Errorf("got %s, %v; want the address that was given back, %s", got, err, want)
	}
}

func TestOverPodsHoldNoResources(t *testing.T) {
	l := newLedger()
	p := named("p", "sim-0")
	if refusal := l.reserve(p, defaultCapacity()); refusal != nil {
		t.Fatal(refusal)
	}
	p.Status.Phase = v1.PodSucceeded
	l.observe(p)
	l.observe(p)
	if got := amount(l.loads["sim-0"], v1.ResourcePods); got != 0 {
		t.Errorf("%d pods count after the only one is over", got)
	}
}

func TestUpToDate(t *testing.T) {
	l := newLedger()
	at := func(version string) *v1.Pod { p := named("p", "sim-0"); p.ResourceVersion = version; return p }
	if l.upToDate(at("5")) {
		t.Error("an unknown pod is up to date")
	}
	l.observe(at("5"))
	l.wrote(at("10"), false)
	for version, want := range map[string]bool{"9": true, "10": false, "11": false, "x": false} {
		if got := l.upToDate(at(version)); got != want {
			t.Errorf("waiting pod, version %s: %v, want %v", version, got, want)
		}
	}
	l.wrote(at("10"), true)
	for version, want := range map[string]bool{"9": true, "10": true, "11": false} {
		if got := l.upToDate(at(version)); got != want {
			t.Errorf("settled pod, version %s: %v, want %v", version, got, want)
		}
	}
}
