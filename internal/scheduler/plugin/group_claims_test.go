// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

func inGroup(name string) podOption {
	return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }
}

// TestPendingAllocationOfAGroup: pods of one group share an allocation before it is written. It counts
// until the last of them gives it up.
func TestPendingAllocationOfAGroup(t *testing.T) {
	cluster := storeDevices(clusterOf(on{node: node("a")}, on{node: node("b")}), gpuClass("gpu"), slice("a", "a0"), slice("b", "b0"), gpus("x", 1), gpus("y", 2))
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", UID: "g"}}
	group.Spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: "x", ResourceClaimName: ptr.To("x")}}
	cluster.SetGroup(group)
	first, second, other := pod(withClaim("x"), inGroup("g")), pod(withClaim("x"), inGroup("g")), pod(withClaim("x"), inGroup("h"))
	cluster.Join(first)
	cluster.Join(second)
	reserved := reserveDevices(t, cluster, first, "a")
	if err := cluster.Reserve(reserved, first.UID, "a"); err != nil {
		t.Fatal(err)
	}
	filter := newDevices(testingclock.NewFakeClock(noon))
	wantRejections := func(p *model.Pod, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, rejections(filter, cluster, p)); diff != "" {
			t.Errorf("rejections (-want +got):\n%s", diff)
		}
	}
	const inProcess = "!resource claim default/x is in the process of being allocated"
	wantRejections(second, "", "!resourceclaim not available on the node")
	wantRejections(other, inProcess, inProcess)
	shared := reserveDevices(t, cluster, second, "a")
	plan := shared.Devices.Claims[0]
	if plan.Allocation != reserved.Devices.Claims[0].Allocation || plan.User.UID != "g" || plan.User.Resource != "podgroups" {
		t.Errorf("plan %+v", plan)
	}
	if err := cluster.Reserve(shared, second.UID, "a"); err != nil {
		t.Fatal(err)
	}
	cluster.Release(reserved, first.UID)
	wantRejections(other, inProcess, inProcess)
	cluster.Release(shared, second.UID)
	wantRejections(other, "", "")
}

// TestClaimOfAGroup: what must be written for a pod whose PodGroup has its claim.
func TestClaimOfAGroup(t *testing.T) {
	reservedFor := func(uid types.UID) resourceClaimOption {
		return func(c *resourcev1.ResourceClaim) {
			c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g", UID: uid}}
		}
	}
	made := func(owner types.UID) resourceClaimOption {
		return func(c *resourcev1.ResourceClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "scheduling.k8s.io/v1beta1", Kind: "PodGroup", Name: "g", UID: owner, Controller: ptr.To(true)}}
		}
	}
	for _, tt := range []struct {
		name  string
		claim *resourcev1.ResourceClaim
		pod   *model.Pod
		want  string // the user that is written, if any
	}{
		{"the group's, allocated", gpus("x", 1, taking("a", "a0")), pod(withClaim("x"), inGroup("g")), "podgroups"},
		{"reserved for the group", gpus("x", 1, taking("a", "a0"), reservedFor("g")), pod(withClaim("x"), inGroup("g")), ""},
		{"reserved for an earlier group", gpus("x", 1, taking("a", "a0"), reservedFor("before")), pod(withClaim("x"), inGroup("g")), "podgroups"},
		{"made for the group", gpus("x", 1, taking("a", "a0"), made("g")), pod(fromTemplate("x", "x"), inGroup("g")), "podgroups"},
		{"the pod's own", gpus("z", 1, taking("a", "a0")), pod(withClaim("z"), inGroup("g")), "pods"},
		{"in no group", gpus("x", 1, taking("a", "a0"), reservedFor("g")), pod(withClaim("x")), "pods"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := storeDevices(clusterOf(on{node: node("a")}), gpuClass("gpu"), tt.claim)
			group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", UID: "g"}}
			wanted := schedulingv1beta1.PodGroupResourceClaim{Name: "x", ResourceClaimName: tt.pod.Spec.ResourceClaims[0].ResourceClaimName}
			if wanted.ResourceClaimTemplateName = tt.pod.Spec.ResourceClaims[0].ResourceClaimTemplateName; wanted.ResourceClaimTemplateName == nil {
				wanted.ResourceClaimName = ptr.To("x")
			}
			group.Spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{wanted}
			cluster.SetGroup(group)
			got := ""
			if plans := reserveDevices(t, cluster, tt.pod, "a").Devices.Claims; len(plans) > 0 {
				got = plans[0].User.Resource
			}
			if got != tt.want {
				t.Errorf("user %q, want %q", got, tt.want)
			}
		})
	}
}
