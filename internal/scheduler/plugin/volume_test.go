// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

const (
	wait = storagev1.VolumeBindingWaitForFirstConsumer
	now  = storagev1.VolumeBindingImmediate
)

func TestVolumeFilters(t *testing.T) {
	ephemeral := withVolume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}})
	named := func(name string) podOption { return func(p *v1.Pod) { p.Name, p.UID = name, "its-uid" } }
	ofPod := func(uid types.UID) claimOption {
		return func(c *v1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: uid, Controller: ptr.To(true)}}
		}
	}
	lost := func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "gone", v1.ClaimLost }
	leavingClaim := func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }
	disk := func(readOnly bool) v1.VolumeSource {
		return v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d", ReadOnly: readOnly}}
	}
	static := class("s", volume.NotSupportedProvisioner, wait)
	a, b := node("a", nodeLabel(v1.LabelTopologyZone, "z1")), node("b", nodeLabel(v1.LabelTopologyZone, "z2"))
	c := node("c")

	for _, tt := range []struct {
		name    string
		filter  Filter
		nodes   []on
		objects []any
		pod     *model.Pod
		want    []string
	}{
		{"no volumes", volumeBinding{}, []on{{node: a}}, nil, pod(), []string{""}},
		{"claim missing", volumeRestrictions{}, []on{{node: a}}, nil, pod(using("x")), []string{`!persistentvolumeclaim "x" not found`}},
		{"claim missing", volumeBinding{}, []on{{node: a}}, nil, pod(using("x")), []string{`!persistentvolumeclaim "x" not found`}},
		{"claim not created yet", volumeBinding{}, []on{{node: a}}, nil, pod(named("p"), ephemeral),
			[]string{`!waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"`}},
		{"ephemeral claim", volumeBinding{}, []on{{node: a}}, []any{static, claim("p-v", "s", ofPod("its-uid")), pv("pv", "s", "1Gi")}, pod(named("p"), ephemeral), []string{""}},
		{"ephemeral claim of another owner", volumeBinding{}, []on{{node: a}}, []any{static, claim("p-v", "s", ofPod("other"))}, pod(named("p"), ephemeral),
			[]string{"!PVC default/p-v was not created for pod default/p (pod is not owner)"}},
		{"claim lost", volumeBinding{}, []on{{node: a}}, []any{claim("x", "s", lost)}, pod(using("x")),
			[]string{`!persistentvolumeclaim "x" bound to non-existent persistentvolume "gone"`}},
		{"claim being deleted", volumeBinding{}, []on{{node: a}}, []any{claim("x", "s", leavingClaim)}, pod(using("x")),
			[]string{`!persistentvolumeclaim "x" is being deleted`}},
		{"unbound, immediate", volumeBinding{}, []on{{node: a}}, []any{class("i", "p", now), claim("x", "i")}, pod(using("x")),
			[]string{"!pod has unbound immediate PersistentVolumeClaims"}},
		{"unbound, class missing", volumeBinding{}, []on{{node: a}}, []any{claim("x", "none")}, pod(using("x")),
			[]string{"!pod has unbound immediate PersistentVolumeClaims"}},
		{"pre-bound by the user", volumeBinding{}, []on{{node: a}},
			[]any{static, claim("x", "s", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }), pv("pv", "s", "1Gi")}, pod(using("x")),
			[]string{"!pod has unbound immediate PersistentVolumeClaims"}},
		{"bound", volumeBinding{}, []on{{node: a}, {node: b}}, []any{claim("x", "s", boundTo("pv")), pv("pv", "s", "1Gi", onlyOn("b"))}, pod(using("x")),
			[]string{"!node(s) didn't match PersistentVolume's node affinity", ""}},
		{"bound, volume missing", volumeBinding{}, []on{{node: a}}, []any{claim("x", "s", boundTo("pv"))}, pod(using("x")),
			[]string{"!node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"}},
		{"one bound elsewhere, one without volume", volumeBinding{}, []on{{node: a}},
			[]any{static, claim("x", "s", boundTo("pv")), pv("pv", "s", "1Gi", onlyOn("b")), claim("y", "s")}, pod(using("x", "y")),
			[]string{"!node(s) didn't match PersistentVolume's node affinity, node(s) didn't find available persistent volumes to bind"}},
		{"static", volumeBinding{}, []on{{node: a}, {node: b}},
			[]any{static, claim("x", "s"), pv("small", "s", "1Mi", onlyOn("a")), pv("right", "s", "2Gi", onlyOn("b")), pv("taken", "s", "2Gi", onlyOn("a"), ownedByClaim("other"))},
			pod(using("x")), []string{"!node(s) didn't find available persistent volumes to bind", ""}},
		{"one volume for two claims", volumeBinding{}, []on{{node: a}}, []any{static, claim("x", "s"), claim("y", "s"), pv("pv", "s", "1Gi")}, pod(using("x", "y")),
			[]string{"!node(s) didn't find available persistent volumes to bind"}},
		{"volume of the claim elsewhere", volumeBinding{}, []on{{node: a}, {node: b}},
			[]any{static, claim("x", "s"), pv("its", "s", "1Gi", onlyOn("b"), ownedByClaim("x")), pv("free", "s", "1Gi", onlyOn("a"))}, pod(using("x")),
			[]string{"!node(s) didn't find available persistent volumes to bind", ""}},
		{"free volume on hold", volumeBinding{}, []on{{node: a}, {node: b}},
			[]any{static, claim("x", "s"), pv("held", "s", "1Gi", onlyOn("a"), heldVolume), pv("free", "s", "9Gi", onlyOn("b"))}, pod(using("x")),
			[]string{"!node(s) didn't find available persistent volumes to bind", ""}},
		{"volume of the claim on hold", volumeBinding{}, []on{{node: a}},
			[]any{class("d", "p", wait), claim("x", "d"), pv("its", "d", "1Gi", ownedByClaim("x"), heldVolume), pv("free", "d", "1Gi")}, pod(using("x")),
			[]string{`!persistentvolumeclaim "x" waits for persistentvolume "its", which is on hold`}},
		{"volume of another claim on hold", volumeBinding{}, []on{{node: a}},
			[]any{static, claim("x", "s"), pv("other", "s", "1Gi", ownedByClaim("y"), heldVolume), pv("free", "s", "1Gi")}, pod(using("x")), []string{""}},
		{"unbound claim on hold", volumeBinding{}, []on{{node: a}}, []any{static, claim("x", "s", heldClaim), pv("free", "s", "1Gi")}, pod(using("x")),
			[]string{`!persistentvolumeclaim "x" is on hold`}},
		{"bound claim and volume on hold", volumeBinding{}, []on{{node: a}},
			[]any{claim("x", "s", boundTo("pv"), heldClaim), pv("pv", "s", "1Gi", ownedByClaim("x"), heldVolume)}, pod(using("x")), []string{""}},
		{"provisioned in a zone", volumeBinding{}, []on{{node: a}, {node: b}, {node: c}}, []any{class("d", "p", wait, "z2"), claim("x", "d")}, pod(using("x")),
			[]string{"!node(s) didn't find available persistent volumes to bind", "", "!node(s) didn't find available persistent volumes to bind"}},
		{"being provisioned for a node", volumeBinding{}, []on{{node: a}, {node: b}}, []any{class("d", "p", wait), claim("x", "d", selected("b"))}, pod(using("x")),
			[]string{"!node(s) didn't find available persistent volumes to bind", ""}},
		{"capacity", volumeBinding{}, []on{{node: a}, {node: b}, {node: c}},
			[]any{class("d", "p", wait), driver("p", true, false), capacity("d", "a", "1Mi"), capacity("d", "b", "1Gi"), claim("x", "d")}, pod(using("x")),
			[]string{"!node(s) did not have enough free storage", "", "!node(s) did not have enough free storage"}},
		{"capacity not tracked", volumeBinding{}, []on{{node: a}}, []any{class("d", "p", wait), driver("p", false, false), claim("x", "d")}, pod(using("x")), []string{""}},

		{"exclusive claim in use", volumeRestrictions{}, []on{{node: a}, {b, []*model.Pod{pod(using("x"))}}}, []any{claim("x", "s", oncePod)}, pod(using("x")),
			[]string{claimInUse.Reasons[0], claimInUse.Reasons[0]}},
		{"exclusive claim free", volumeRestrictions{}, []on{{a, []*model.Pod{pod(using("y"))}}}, []any{claim("x", "s", oncePod)}, pod(using("x")), []string{""}},
		{"same disk", volumeRestrictions{}, []on{{a, []*model.Pod{pod(withVolume(disk(true)))}}, {node: b}}, nil, pod(withVolume(disk(false))),
			[]string{"node(s) had no available disk", ""}},
		{"same disk, only read", volumeRestrictions{}, []on{{a, []*model.Pod{pod(withVolume(disk(true)))}}}, nil, pod(withVolume(disk(true))), []string{""}},

		{"zone", volumeZone{}, []on{{node: a}, {node: b}, {node: c}},
			[]any{claim("x", "s", boundTo("pv")), pv("pv", "s", "1Gi", volumeLabel(v1.LabelTopologyZone, "z2__z3"))}, pod(using("x")),
			[]string{"!node(s) had no available volume zone", "", ""}},
		{"zone by its old label", volumeZone{}, []on{{node: a}, {node: b}},
			[]any{claim("x", "s", boundTo("pv")), pv("pv", "s", "1Gi", volumeLabel(v1.LabelFailureDomainBetaZone, "z1"))}, pod(using("x")),
			[]string{"", "!node(s) had no available volume zone"}},
		{"zone, volume missing", volumeZone{}, []on{{node: a}}, []any{claim("x", "s", boundTo("pv"))}, pod(using("x")), []string{`!persistentvolume "pv" not found`}},

		{"limit reached", volumeLimits{}, []on{{a, []*model.Pod{pod(using("y"))}}, {node: b}}, []any{
			csiNode("a", "p", 1), csiNode("b", "p", 1), claim("y", "s", boundTo("pv1")), pv("pv1", "s", "1Gi", ofDriver("p", "h1")),
			claim("x", "s", boundTo("pv2")), pv("pv2", "s", "1Gi", ofDriver("p", "h2")),
		}, pod(using("x")), []string{"node(s) exceed max volume count", ""}},
		{"same volume counts once", volumeLimits{}, []on{{a, []*model.Pod{pod(using("x"))}}},
			[]any{csiNode("a", "p", 1), claim("x", "s", boundTo("pv")), pv("pv", "s", "1Gi", ofDriver("p", "h"))}, pod(using("x")), []string{""}},
		{"attached volume counts", volumeLimits{}, []on{{node: a}}, []any{
			csiNode("a", "p", 1), attached("a", "p", "pv1"), pv("pv1", "s", "1Gi", ofDriver("p", "h1")), class("d", "p", wait), claim("x", "d"),
		}, pod(using("x")), []string{"node(s) exceed max volume count"}},
		{"attached volume of the pod", volumeLimits{}, []on{{node: a}}, []any{
			csiNode("a", "p", 1), attached("a", "p", "pv1"), pv("pv1", "s", "1Gi", ofDriver("p", "h1")), claim("x", "s", boundTo("pv1")),
		}, pod(using("x")), []string{""}},
		{"unbound claims count", volumeLimits{}, []on{{node: a}}, []any{csiNode("a", "p", 1), class("d", "p", wait), claim("x", "d"), claim("y", "d")}, pod(using("x", "y")),
			[]string{"node(s) exceed max volume count"}},
		{"driver must be there", volumeLimits{}, []on{{node: a}, {node: b}},
			[]any{driver("p", false, true), csiNode("b", "p", 9), class("d", "p", wait), claim("x", "d")}, pod(using("x")),
			[]string{"p CSI driver is not installed on the node", ""}},
	} {
		t.Run(tt.filter.Name()+"/"+tt.name, func(t *testing.T) {
			cluster := store(clusterOf(tt.nodes...), tt.objects...)
			if diff := cmp.Diff(tt.want, rejections(tt.filter, cluster, tt.pod)); diff != "" {
				t.Errorf("rejections (-want +got):\n%s", diff)
			}
		})
	}
}

// planOn returns the volume that each of a pod's claims gets on a node; "new" if it is created.
func planOn(t *testing.T, c *model.Cluster, p *model.Pod, name string) map[string]string {
	t.Helper()
	check, rejection := volumeBinding{}.For(c, p)
	if rejection != nil {
		t.Fatal(rejection.Reasons)
	}
	var reservation model.Reservation
	check.(Reserver).Reserve(c.Node(name), &reservation)
	got := map[string]string{}
	for _, match := range reservation.Volumes.Bind {
		got[match.Claim.Name] = match.Volume.Name
	}
	for _, provision := range reservation.Volumes.Provision {
		got[provision.Claim.Name] = "new"
	}
	return got
}

func TestVolumePlan(t *testing.T) {
	for _, tt := range []struct {
		name    string
		objects []any
		want    map[string]string
	}{
		{"smallest that fits, smallest claim first", []any{
			class("s", "p", wait), claim("x", "s", sized("5Gi")), claim("y", "s"),
			pv("v9", "s", "9Gi"), pv("v2", "s", "2Gi"), pv("v6", "s", "6Gi"), pv("other", "t", "1Gi"),
		}, map[string]string{"x": "v6", "y": "v2"}},
		{"created if none fits", []any{class("s", "p", wait), claim("x", "s"), claim("y", "s"), pv("v1", "s", "1Gi")}, map[string]string{"x": "v1", "y": "new"}},
		{"its own, though larger", []any{
			class("s", "p", wait), claim("x", "s"), claim("y", "s", boundTo("v3")), pv("v3", "s", "1Gi"), pv("v1", "s", "1Gi"), pv("v2", "s", "2Gi", ownedByClaim("x")),
		}, map[string]string{"x": "v2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := store(clusterOf(on{node: node("a")}), tt.objects...)
			if diff := cmp.Diff(tt.want, planOn(t, cluster, pod(using("x", "y")), "a")); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAssumedVolume: a decided binding counts until it ends, or the volume changes.
func TestAssumedVolume(t *testing.T) {
	cluster := store(clusterOf(on{node: node("a")}), class("s", volume.NotSupportedProvisioner, wait), claim("x", "s"), claim("y", "s"), pv("v", "s", "1Gi"))
	first := pod(using("x"))
	check, _ := volumeBinding{}.For(cluster, first)
	var reservation model.Reservation
	check.(Reserver).Reserve(cluster.Node("a"), &reservation)
	if err := cluster.Reserve(&reservation, first.UID, "a"); err != nil {
		t.Fatal(err)
	}
	second := pod(using("y"))
	if diff := cmp.Diff([]string{"!" + noVolume}, rejections(volumeBinding{}, cluster, second)); diff != "" {
		t.Errorf("while assumed (-want +got):\n%s", diff)
	}
	cluster.Release(&reservation, first.UID)
	if diff := cmp.Diff([]string{""}, rejections(volumeBinding{}, cluster, second)); diff != "" {
		t.Errorf("after release (-want +got):\n%s", diff)
	}
}

func TestVolumeScores(t *testing.T) {
	a, b, c := on{node: node("a")}, on{node: node("b")}, on{node: node("c")}
	for _, tt := range []struct {
		name    string
		objects []any
		want    []int64
	}{
		{"bound claims", []any{claim("x", "s", boundTo("v")), pv("v", "s", "1Gi")}, []int64{0, 0, 0}},
		{"existing volumes", []any{
			class("s", "p", wait), claim("x", "s"), pv("v1", "s", "1Gi", onlyOn("a")), pv("v4", "s", "4Gi", onlyOn("b")),
		}, []int64{0, 75, 0}},
		{"new volumes", []any{
			class("s", "p", wait), driver("p", true, false), capacity("s", "a", "2Gi"), capacity("s", "b", "10Gi"), capacity("s", "c", "1Gi"), claim("x", "s"),
		}, []int64{50, 90, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := store(clusterOf(a, b, c), tt.objects...)
			got := make([]int64, 3)
			volumeBinding{}.Score(cluster, pod(using("x")), cluster.Nodes(), got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("scores (-want +got):\n%s", diff)
			}
		})
	}
}
