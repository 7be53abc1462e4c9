// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
)

// TestVolumesOfAGang: pods of a gang get a volume each. A gang that does not fit reserves none.
func TestVolumesOfAGang(t *testing.T) {
	b := newBench(testNode("a", "4")).groups(gang("g", 2))
	b.setClass(testClass("s", volume.NotSupportedProvisioner))
	for _, name := range []string{"c0", "c1", "other"} {
		b.setClaim(testClaim(name, "s", "1"))
	}
	b.setVolume(testVolume("v0", "s", "2", ""))
	b.set(testPod("g0", "1", claiming("c0"), inGroup("g")), testPod("g1", "1", claiming("c1"), inGroup("g")))
	got := b.decide()
	if len(got) != 3 || got[2] != "group g: False Unschedulable minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, "+noVictims {
		t.Fatalf("%q", got)
	}
	if len(b.binding) > 0 || b.cluster.NodeOf("g0") != "" {
		t.Error("a pod of the gang is on a node")
	}

	// The only volume is free for another pod.
	b.set(testPod("p", "1", claiming("other")))
	if d, found := b.next(); !found || d.node != "a" || d.reservation == nil {
		t.Fatalf("%+v", d)
	}
	b.removePod("p")

	b.setVolume(testVolume("v1", "s", "3", ""))
	b.clock.Step(20 * time.Second)
	volumes := map[string]string{}
	for d, found := b.next(); found; d, found = b.next() {
		if d.group == nil && d.reservation != nil {
			for _, match := range d.reservation.Volumes.Bind {
				volumes[match.Volume.Name] = d.pod.Name
			}
		}
	}
	if len(volumes) != 2 || volumes["v0"] == volumes["v1"] {
		t.Fatalf("volumes %v", volumes)
	}

	// Each pod is bound when its own volume is.
	for name, pod := range volumes {
		claim := "c" + pod[1:]
		b.reserved(types.UID(pod), written{testVolume(name, "s", "4", claim)}, nil)
		b.want(t)
		b.setClaim(testClaim(claim, "s", "5", completed(name)))
		b.want(t, pod+" -> a")
	}
}

// TestFailedVolumeOfAGang: if the reservation of one pod fails, only that pod is tried again.
func TestFailedVolumeOfAGang(t *testing.T) {
	b := newBench(testNode("a", "4")).groups(gang("g", 2))
	b.setClass(testClass("s", "example.com/p"))
	b.setClaim(testClaim("c", "s", "1"))
	b.set(testPod("g0", "1", claiming("c"), inGroup("g")), testPod("g1", "1", inGroup("g")))
	b.want(t, "g0 -> a", "g1 -> a", "group g: True Scheduled ")
	b.set(testPod("g1", "1", inGroup("g"), onNode("a")))
	b.reserved("g0", written{testClaim("c", "s", "2", selectedNode("a"))}, nil)
	b.clock.Step(bindTimeout)
	got := b.decide()
	if len(got) != 1 || b.cluster.NodeOf("g1") != "a" || b.cluster.NodeOf("g0") != "" {
		t.Fatalf("%q", got)
	}
	b.clock.Step(20 * time.Second)
	b.want(t, "g0 -> a", "group g: True Scheduled ")
}
