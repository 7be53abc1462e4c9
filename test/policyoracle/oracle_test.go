// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policyoracle

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/network/policy"
	"github.com/kindred-project/kindred/internal/network/policy/policytest"
)

const (
	worlds = 400
	// perWorld is the number of random connections of each world.
	perWorld = 2000
)

// The compiled fragments of all nodes allow a connection exactly if the engine of kube-network-policies does.
func TestFragmentsAllowWhatTheEngineAllows(t *testing.T) {
	oracle := newEngine(t)
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	compared, allowed, denied := 0, 0, 0
	for seed := range uint64(worlds) {
		w := policytest.NewWorld(seed)
		all := policy.Objects(w.Objects())
		oracle.load(t, all)
		nodes := nodesOf(t, all)
		for range perWorld {
			// One address belongs to no pod.
			c := w.Connection(w.IntN(policytest.Pods+1), w.IntN(policytest.Pods+1))
			got, want := nodes.allow(c), oracle.allows(ctx, c)
			if toItself(all.Pods, c) {
				if !got {
					t.Fatalf("seed %d, %v: the rules do not let a pod connect to itself", seed, c)
				}
				continue
			}
			if got != want {
				t.Fatalf("seed %d, %v: got %t, want %t", seed, c, got, want)
			}
			compared++
			if want {
				allowed++
			} else {
				denied++
			}
		}
	}
	t.Logf("compared %d of %d connections: %d allowed, %d denied", compared, worlds*perWorld, allowed, denied)
	if compared < worlds*perWorld*9/10 || min(allowed, denied) < compared/5 {
		t.Errorf("compared only %d of %d connections, %d allowed and %d denied", compared, worlds*perWorld, allowed, denied)
	}
}

// toItself reports whether a pod connects to itself. The API always allows that, but the engine applies policies to such
// connections.
func toItself(pods []*corev1.Pod, c policytest.Connection) bool {
	return c.Client == c.Server && slices.ContainsFunc(withoutEnded(pods), func(p *corev1.Pod) bool {
		return !p.Spec.HostNetwork && slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool {
			return netip.MustParseAddr(ip.IP) == c.Client
		})
	})
}

// cluster has the rules of both nodes of a World. The engine decides about both ends of a connection wherever they are, while
// the rules of a node isolate only its own pods.
type cluster []policytest.Kernel

func nodesOf(t *testing.T, all policy.Objects) cluster {
	t.Helper()
	var nodes cluster
	for _, name := range []string{"node", "other"} {
		fragments, errs := policy.Compile(policy.Options{Node: name, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}, all)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		nodes = append(nodes, policytest.Load(fragments))
	}
	return nodes
}

func (nodes cluster) allow(c policytest.Connection) bool {
	for _, n := range nodes {
		if !n.Allows(c) {
			return false
		}
	}
	return true
}

// The type packet must have the layout of the engine's, which fills it here.
func TestLayoutOfPackets(t *testing.T) {
	udp := []byte{
		0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4: UDP from 10.0.0.1 to 10.0.0.2
		0x9c, 0x40, 0, 80, 0, 12, 0, 0, // UDP: from 40000 to 80
		'd', 'a', 't', 'a',
	}
	got, err := parsePacket(udp)
	if err != nil {
		t.Fatal(err)
	}
	want := packet{
		id: 0, family: corev1.IPv4Protocol, srcIP: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1},
		dstIP: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}, proto: corev1.ProtocolUDP,
		srcPort: clientPort, dstPort: 80, payload: []byte("data"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
