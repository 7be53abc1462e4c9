// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

const mounting = `running PreBind plugin "VolumeBinding": binding volumes: `

func testClass(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

func testClaim(name, class, version string, edit ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: version},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, f := range edit {
		f(c)
	}
	return c
}

func selectedNode(node string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, node)
	}
}

func completed(name string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName = name
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnBindCompleted, "yes")
	}
}

func testVolume(name, class, version, claim string, nodes ...string) *v1.PersistentVolume {
	object := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version},
		Spec: v1.PersistentVolumeSpec{
			StorageClassName: class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
	if claim != "" {
		object.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: claim, UID: types.UID(claim)}
	}
	if len(nodes) > 0 {
		object.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: nodes}},
		}}}}
	}
	return object
}

func claiming(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, name := range names {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

// reserving returns a bench on which pod p waits for its claim c to be bound to v or provisioned.
func reserving(t *testing.T, provisioner string) *bench {
	t.Helper()
	b := newBench(testNode("a", "4"))
	b.setClass(testClass("s", provisioner))
	b.setClaim(testClaim("c", "s", "1"))
	if provisioner == volume.NotSupportedProvisioner {
		b.setVolume(testVolume("v", "s", "2", ""))
	}
	b.set(testPod("p", "1", claiming("c")))
	d, found := b.next()
	if !found || d.node != "a" || d.reservation == nil {
		t.Fatalf("decision %+v", d)
	}
	return b
}

func TestBindsWhenClaimIsBound(t *testing.T) {
	b := reserving(t, volume.NotSupportedProvisioner)
	b.reserved("p", written{testVolume("v", "s", "3", "c")}, nil)
	b.want(t)
	// An event from before the write.
	b.setVolume(testVolume("v", "s", "2", ""))
	b.want(t)
	b.setClaim(testClaim("c", "s", "4", completed("v")))
	b.want(t, "p -> a")
	b.set(testPod("p", "1", claiming("c"), onNode("a")))
	if len(b.binding)+len(b.awaiting) != 0 {
		t.Error("the pod is not forgotten")
	}
	b.clock.Step(time.Hour)
	b.want(t)
}

func TestBindsWhenVolumeIsProvisioned(t *testing.T) {
	b := reserving(t, "p")
	b.reserved("p", written{testClaim("c", "s", "3", selectedNode("a"))}, nil)
	b.setClaim(testClaim("c", "s", "5", selectedNode("a"), completed("new")))
	b.want(t) // its volume was not seen yet
	b.setVolume(testVolume("new", "s", "4", "c", "a"))
	b.want(t, "p -> a")
}

func TestReservationFails(t *testing.T) {
	picked := testClaim("c", "s", "3", selectedNode("a"))
	for _, tt := range []struct {
		name        string
		provisioner string
		change      func(*bench)
		want        string
	}{
		{"write refused", "p", func(b *bench) { b.reserved("p", nil, errors.New("no")) }, "no"},
		{"provisioning failed", "p", func(b *bench) {
			b.reserved("p", written{picked}, nil)
			b.setClaim(testClaim("c", "s", "4", func(c *v1.PersistentVolumeClaim) { c.Annotations = map[string]string{} }))
		}, mounting + `provisioning failed for PVC "c"`},
		{"annotations gone", "p", func(b *bench) {
			b.reserved("p", written{picked}, nil)
			b.setClaim(testClaim("c", "s", "4"))
		}, mounting + `selectedNode annotation reset for PVC "c"`},
		{"claim deleted", "p", func(b *bench) {
			b.reserved("p", written{picked}, nil)
			b.removeClaim(picked)
		}, mounting + `failed to check provisioning pvc: persistentvolumeclaims "default/c" not found`},
		{"created elsewhere", "p", func(b *bench) {
			b.reserved("p", written{picked}, nil)
			b.setVolume(testVolume("new", "s", "4", "c", "b"))
			b.setClaim(testClaim("c", "s", "5", selectedNode("a"), completed("new")))
		}, mounting + `pv "new" node affinity doesn't match node "a": no matching NodeSelectorTerms`},
		{"node deleted", "p", func(b *bench) {
			b.reserved("p", written{picked}, nil)
			b.removeNode("a")
		}, mounting + `failed to get node "a": node "a" not found`},
		{"timeout", "p", func(b *bench) {
			b.reserved("p", written{picked}, nil)
			b.clock.Step(bindTimeout)
		}, mounting + "context deadline exceeded"},
		{"volume taken away", volume.NotSupportedProvisioner, func(b *bench) {
			b.reserved("p", written{testVolume("v", "s", "3", "c")}, nil)
			b.setVolume(testVolume("v", "s", "4", ""))
			b.setClaim(testClaim("c", "s", "5"))
		}, mounting + `ClaimRef got reset for pv "v"`},
		{"volume deleted", volume.NotSupportedProvisioner, func(b *bench) {
			b.reserved("p", written{testVolume("v", "s", "3", "c")}, nil)
			b.removeVolume(testVolume("v", "s", "3", "c"))
		}, mounting + `failed to check binding: persistentvolumes "v" not found`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := reserving(t, tt.provisioner)
			tt.change(b)
			d, found := b.next()
			if !found || d.reason != v1.PodReasonSchedulerError || d.message != tt.want {
				t.Fatalf("decision %+v, want %q", d, tt.want)
			}
			if d.nominate == nil || *d.nominate != "" || d.pod.Status.NominatedNodeName != "a" {
				t.Error("the nomination is not cleared")
			}
			if b.cluster.NodeOf("p") != "" || len(b.awaiting) != 0 {
				t.Error("the pod is still on its node")
			}
			b.want(t)
			if b.clock.Step(time.Second); b.cluster.Node("a") == nil {
				return
			}
			if _, found := b.next(); !found {
				t.Error("the pod is not tried again after its backoff")
			}
		})
	}
}

// TestDeletedWhileReserving: the volume that the pod did not use is free for another.
func TestDeletedWhileReserving(t *testing.T) {
	b := reserving(t, volume.NotSupportedProvisioner)
	b.setClaim(testClaim("c2", "s", "1"))
	b.set(testPod("p2", "1", claiming("c2")))
	b.want(t, "p2: Unschedulable: 0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind. "+
		"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
	b.removePod("p")
	b.clock.Step(time.Second)
	b.want(t, "p2 -> a")
	b.reserved("p", nil, errors.New("too late"))
	b.want(t)
}

// TestSharedClaim: two pods that use one claim reserve the same volume, and one's failure does not
// take it from the other.
func TestSharedClaim(t *testing.T) {
	b := reserving(t, volume.NotSupportedProvisioner)
	b.setVolume(testVolume("v0", "s", "2", "")) // would be preferred, by its name
	b.set(testPod("p2", "1", claiming("c")))
	d, _ := b.next()
	if d.reservation == nil || d.reservation.Volumes.Bind[0].Volume.Name != "v" || !d.reservation.Volumes.Bind[0].Write {
		t.Fatalf("decision %+v", d)
	}
	b.reserved("p", nil, errors.New("no"))
	b.want(t, "p: SchedulerError: no")
	if owner := b.cluster.Volumes.Volume("v").Spec.ClaimRef; owner == nil || owner.Name != "c" {
		t.Error("the second pod's reservation is gone")
	}
}
