// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/pod"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func TestAddressesAreUnique(t *testing.T) {
	l := newAllocations(podAddresses...)
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
			t.Fatalf("%s was allocated twice", ip)
		}
		if nodeAddresses.Contains(netip.MustParseAddr(ip)) {
			t.Fatalf("%s is the address of a node", ip)
		}
		seen[ip] = true
		if again, _ := l.address(uid); again != ip {
			t.Fatalf("a pod has %s and %s", ip, again)
		}
	}
}

func TestAddressesAreExhaustedAndReused(t *testing.T) {
	l := newAllocations(netip.MustParsePrefix("198.19.255.252/30"), netip.MustParsePrefix("240.0.0.0/30"))
	var given []string
	for i := range 6 {
		ip, err := l.address(types.UID(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, ip)
	}
	if want := []string{"198.19.255.253", "198.19.255.254", "198.19.255.255", "240.0.0.1", "240.0.0.2", "240.0.0.3"}; !slices.Equal(given, want) {
		t.Errorf("got %v, want %v", given, want)
	}
	if ip, err := l.address("late"); err == nil {
		t.Errorf("%s was allocated after the last address", ip)
	}
	want, _ := l.address("3")
	l.release("3")
	got, err := l.address("late")
	if err != nil || got != want {
		t.Errorf("got %s, %v; want the released address %s", got, err, want)
	}
}

func TestFinishedPodsHaveNoShare(t *testing.T) {
	l := newAllocations(podAddresses...)
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: defaultCapacity()}}
	node.Status.Allocatable[v1.ResourcePods] = quantity("1")
	reserve := func(name string) *pod.Refusal {
		p := named(name, "sim-0")
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		return l.reserve(p, func(load *admission.Load) *pod.Refusal {
			return admission.Check(klog.Background(), node, p, load)
		})
	}
	if refusal := reserve("p"); refusal != nil {
		t.Fatal(refusal)
	}
	over := named("p", "sim-0")
	over.Status.Phase = v1.PodSucceeded
	l.observe(over)
	l.observe(over)
	if refusal := reserve("next"); refusal != nil {
		t.Errorf("after the only pod has ended: %v", refusal)
	}
	if refusal := reserve("last"); refusal == nil || refusal.Reason != "OutOfpods" {
		t.Errorf("a second pod on a node for one: %v", refusal)
	}
}

func TestUpToDate(t *testing.T) {
	l := newAllocations(podAddresses...)
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
