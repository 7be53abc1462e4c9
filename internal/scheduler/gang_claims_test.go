// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sharing has the members of a group use a claim of the group.
func sharing(claim string) func(*schedulingv1beta1.PodGroup) {
	return func(g *schedulingv1beta1.PodGroup) {
		g.Spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: "r", ResourceClaimName: &claim}}
	}
}

// allocatedOn allocates a claim on a node, for users.
func allocatedOn(node, version string, users ...resourcev1.ResourceClaimConsumerReference) *resourcev1.ResourceClaim {
	c := testResourceClaim("c", version)
	c.Status.ReservedFor = users
	c.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d", Pool: node, Device: "d0"}}},
		NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
		}}},
	}
	return c
}

var gangUser = resourcev1.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g", UID: "g"}

// TestDeviceOfAGang: the pods of a gang share one device, which is decided once.
func TestDeviceOfAGang(t *testing.T) {
	b := newBench(testNode("a", "4")).groups(gang("g", 2, sharing("c")))
	b.setDeviceClass(testDeviceClass())
	b.setSlice(testDevices("a"))
	b.setResourceClaim(testResourceClaim("c", "1"))
	b.set(members("g", 2, "1", usingDevices("c"))...)
	var allocation *resourcev1.AllocationResult
	for _, name := range []string{"g0", "g1"} {
		d, _ := b.next()
		if d.pod == nil || d.pod.Name != name || d.node != "a" {
			t.Fatalf("decision %+v", d)
		}
		plan := d.reservation.Devices.Claims[0]
		if diff := cmp.Diff(gangUser, plan.User); diff != "" {
			t.Errorf("user (-want +got):\n%s", diff)
		}
		if allocation != nil && plan.Allocation != allocation {
			t.Error("the claim is allocated twice")
		}
		allocation = plan.Allocation
	}
	b.want(t, "group g: True Scheduled ")

	// The write of one pod fails. The allocation remains decided, for the other one.
	b.reserved("g0", nil, errors.New("no"))
	b.set(testPod("other", "1", usingDevices("c")))
	b.want(t, "g0: SchedulerError: no",
		"other: Unschedulable: 0/1 nodes are available: resource claim default/c is in the process of being allocated. "+
			"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
	written1 := testResourceClaim("c", "2")
	written1.Status.Allocation, written1.Status.ReservedFor = allocation, []resourcev1.ResourceClaimConsumerReference{gangUser}
	b.reserved("g1", written{written1}, nil)
	b.clock.Step(2 * time.Second)
	b.want(t, "g1 -> a", "g0 -> a", "group g: True Scheduled ", "other -> a")
}

// TestDeviceOfARejectedGang: a gang that does not fit takes no device.
func TestDeviceOfARejectedGang(t *testing.T) {
	b := newBench(testNode("a", "1")).groups(gang("g", 2, sharing("c")))
	b.setDeviceClass(testDeviceClass())
	b.setSlice(testDevices("a"))
	b.setResourceClaim(testResourceClaim("c", "1"))
	b.setResourceClaim(testResourceClaim("c2", "1"))
	b.set(members("g", 2, "1", usingDevices("c"))...)
	if got := b.decide(); len(got) != 3 || b.cluster.NodeOf("g0") != "" {
		t.Fatalf("%q", got)
	}
	b.set(testPod("other", "1", usingDevices("c2")))
	b.want(t, "other -> a")
}

// TestClaimsOfARejectedGang: a gang that does not fit gives back what keeps it from a node, or keeps others
// from the claim.
func TestClaimsOfARejectedGang(t *testing.T) {
	podUser := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "x", UID: "x"}
	for _, tt := range []struct {
		name   string
		claim  *resourcev1.ResourceClaim
		cpu    string // of each of two pods; the only node has 2
		placed bool
		want   groupRelease
		reason string
	}{
		{"the node is gone", allocatedOn("gone", "1", gangUser), "1", false, groupRelease{deallocate: allocatedOn("gone", "1", gangUser)}, "deallocation of PodGroup ResourceClaim completed, "},
		{"allocated, not reserved", allocatedOn("gone", "1"), "1", false, groupRelease{}, "deallocation and deletion of ResourceClaims completed, "},
		{"used by another pod too", allocatedOn("gone", "1", podUser, gangUser), "1", false, groupRelease{unreserve: allocatedOn("gone", "1", podUser, gangUser)}, "ResourceClaim unreserved for PodGroup, "},
		{"too few CPUs", allocatedOn("a", "1", gangUser), "2", false, groupRelease{unreserve: allocatedOn("a", "1", gangUser)}, "ResourceClaim unreserved for PodGroup, "},
		{"in use by a pod of the group", allocatedOn("gone", "1", gangUser), "1", true, groupRelease{}, ""},
		{"not allocated", testResourceClaim("c", "1"), "2", false, groupRelease{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(testNode("a", "2")).groups(gang("g", 2, sharing("c")))
			b.setDeviceClass(testDeviceClass())
			b.setSlice(testDevices("a"))
			b.setResourceClaim(tt.claim)
			if tt.placed {
				b.set(testPod("placed", "1", usingDevices("c"), inGroup("g"), onNode("gone")))
			}
			b.set(members("g", 2, tt.cpu, usingDevices("c"))...)
			var report *groupReport
			for d, found := b.next(); found; d, found = b.next() {
				if d.group != nil {
					report = d.group
				}
			}
			if diff := cmp.Diff(tt.want, report.release, cmp.AllowUnexported(groupRelease{})); diff != "" {
				t.Errorf("release (-want +got):\n%s", diff)
			}
			if want := tt.reason + noVictims; !strings.HasSuffix(report.condition.Message, want) || tt.reason == "" && strings.HasSuffix(report.condition.Message, "completed, "+noVictims) {
				t.Errorf("message %q", report.condition.Message)
			}
		})
	}
}

// TestReleaseIsABarrier: no pod is placed with a claim that is about to lose its allocation.
func TestReleaseIsABarrier(t *testing.T) {
	gone := allocatedOn("a", "1", gangUser)
	b := newBench(testNode("b", "2")).groups(gang("g", 2, sharing("c")))
	b.setDeviceClass(testDeviceClass())
	b.setResourceClaim(gone)
	b.set(members("g", 2, "1", usingDevices("c"))...)
	b.decide()
	b.setNode(testNode("a", "2"))
	b.setSlice(testDevices("a"))
	b.clock.Step(20 * time.Second)
	got := b.decide()
	if len(got) != 3 || !strings.Contains(got[0], "resource claim default/c is in the process of being released") {
		t.Fatalf("%q", got)
	}
	free := testResourceClaim("c", "2")
	b.released(gone, free)
	b.clock.Step(20 * time.Second)
	b.want(t, "g0 -> a", "g1 -> a", "group g: True Scheduled ")
}

// TestClaimOfAGangThroughTheAPI: the claim is allocated once, and reserved for the PodGroup. A gang whose
// allocation is on a node that is gone gets another one.
func TestClaimOfAGangThroughTheAPI(t *testing.T) {
	stale := allocatedOn("gone", "")
	stale.Name, stale.UID, stale.Status.ReservedFor = "d", "d", []resourcev1.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "h", UID: "h"}}
	a := newAPI(testNode("n", "8"), testNode("m", "8"), testDeviceClass(), testDevices("n"), testDevices("m"), testResourceClaim("c", ""), stale,
		gang("g", 3, sharing("c")), gang("h", 2, sharing("d")))
	for _, pod := range append(members("g", 3, "1", usingDevices("c")), members("h", 2, "1", usingDevices("d"))...) {
		if err := a.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	start(t, Options{Client: a, Gangs: true})
	for _, name := range []string{"g0", "g1", "g2", "h0", "h1"} {
		eventually(t, name+" is bound", func() bool { return a.pod(t, name).Spec.NodeName != "" })
	}
	for name, user := range map[string]string{"c": "g", "d": "h"} {
		claim, err := a.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].Name != user || claim.Status.Allocation == nil {
			t.Errorf("claim %+v, %v", claim, err)
		}
		if node := a.pod(t, user+"0").Spec.NodeName; claim.Status.Allocation != nil && claim.Status.Allocation.Devices.Results[0].Pool != node {
			t.Errorf("%s is on node %s, its device on %s", user, node, claim.Status.Allocation.Devices.Results[0].Pool)
		}
	}
}
