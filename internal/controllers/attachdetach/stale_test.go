// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A volume is not attached again before the cache shows its attachment.
func TestStaleAttachments(t *testing.T) {
	for name, answerIsLost := range map[string]bool{"created": false, "created, answer lost": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newPod("p", "b"))
			if answerIsLost {
				b.Refuse = func(_ string, obj client.Object) error {
					b.Must(b.API.Create(ctx, obj.DeepCopyObject().(client.Object)))
					return errors.New("timeout")
				}
			}
			b.Sync()
			if _, err := b.Reconcile(ctx, request); (err != nil) != answerIsLost {
				t.Fatal(err)
			}
			b.Refuse = nil
			b.drive()
			b.Must(b.API.Delete(ctx, newPod("p", "b")))
			b.Must(b.API.Create(ctx, newPod("q", "a")))
			b.Sync(&corev1.PodList{})
			for range 2 {
				if after := b.step(); !slices.Equal(b.nodes(), []string{"b (deleting)"}) || after == 0 {
					t.Fatalf("attached to %v, next after %v", b.nodes(), after)
				}
			}
			b.drive()
			if b.step(); !slices.Equal(b.nodes(), []string{"a"}) {
				t.Errorf("attached to %v after an attachment that the cache never showed was deleted", b.nodes())
			}
		})
	}
}

// A volume that the cached Node does not use may be in use by now.
func TestStaleNode(t *testing.T) {
	b := newBench(t)
	b.attached("a")
	b.kubelet("a")
	b.Must(b.API.Delete(ctx, newPod("on-a", "a")))
	b.Sync(&corev1.PodList{})
	if after := b.step(); after == 0 || !slices.Equal(b.nodes(), []string{"a"}) || !b.lists("a") {
		t.Errorf("attached to %v, listed %v, next after %v", b.nodes(), b.lists("a"), after)
	}
}

// A node whose cached taint vouches that it is shut down may run again.
func TestStaleTaint(t *testing.T) {
	b := newBench(t)
	b.attached("a")
	b.kubelet("a")
	node := b.node("a")
	node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	b.Must(b.API.Update(ctx, node))
	b.Must(b.API.Delete(ctx, newPod("on-a", "a")))
	b.Sync()
	node.Spec.Taints = nil
	b.Must(b.API.Update(ctx, node))
	if b.step(); !slices.Equal(b.nodes(), []string{"a"}) {
		t.Errorf("attached to %v", b.nodes())
	}
}

// A node whose cached state is old may have returned.
func TestStaleReadiness(t *testing.T) {
	b := newBench(t)
	b.attached("a")
	b.kubelet("a")
	node := b.node("a")
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	b.Must(b.API.Status().Update(ctx, node))
	b.Must(b.API.Delete(ctx, newPod("on-a", "a")))
	b.reconcile()
	b.Clock.Step(unmountLimit + time.Second)
	node = b.node("a")
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	b.Must(b.API.Status().Update(ctx, node))
	if b.step(); !slices.Equal(b.nodes(), []string{"a"}) {
		t.Errorf("attached to %v", b.nodes())
	}
}

// second adds another PersistentVolume for the same volume, with a claim of its own, which a pod on a
// node uses.
func (b *bench) second(node string, modes ...corev1.PersistentVolumeAccessMode) {
	b.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "second"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "w"}}
	b.Must(b.API.Create(ctx, claim))
	v := &corev1.PersistentVolume{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Name: "v"}, v))
	v.ObjectMeta = metav1.ObjectMeta{Name: "w"}
	v.Spec.AccessModes = modes
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "second", UID: claim.UID}
	b.Must(b.API.Create(ctx, v))
	pod := newPod("second", node)
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "second"
	b.Must(b.API.Create(ctx, pod))
}

// Two PersistentVolumes may name one volume.
func TestTwoPersistentVolumes(t *testing.T) {
	for name, c := range map[string]struct {
		mode corev1.PersistentVolumeAccessMode
		use  bool
		want []string
	}{
		"both exclusive":           {corev1.ReadWriteOnce, true, []string{"a"}},
		"one shared":               {corev1.ReadWriteMany, true, []string{"a"}},
		"exclusive one not in use": {corev1.ReadWriteMany, false, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if c.use {
				b.attached("a")
			}
			b.second("b", c.mode)
			if b.reconcile(); !slices.Equal(b.nodes(), c.want) {
				t.Errorf("attached to %v, want %v", b.nodes(), c.want)
			}
		})
	}
}

// An attachment outlives its PersistentVolume while the node uses the volume.
func TestWithoutPersistentVolume(t *testing.T) {
	b := newBench(t)
	b.attached("a")
	b.kubelet("a")
	b.Must(b.API.Delete(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}))
	if b.reconcile(); !slices.Equal(b.nodes(), []string{"a"}) {
		t.Errorf("in use, attached to %v", b.nodes())
	}
	b.Must(b.API.Delete(ctx, newPod("on-a", "a")))
	b.kubelet("a")
	if b.reconcile(); !slices.Equal(b.nodes(), []string{"a (deleting)"}) {
		t.Errorf("not in use, attached to %v", b.nodes())
	}
}

// A driver that no longer needs attachments keeps those that pods use.
func TestNoLongerAttachable(t *testing.T) {
	b := newBench(t)
	b.attached("a")
	b.Must(b.API.Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}}))
	if b.reconcile(); !slices.Equal(b.nodes(), []string{"a"}) {
		t.Errorf("in use, attached to %v", b.nodes())
	}
	b.Must(b.API.Delete(ctx, newPod("on-a", "a")))
	if b.reconcile(); !slices.Equal(b.nodes(), []string{"a (deleting)"}) {
		t.Errorf("not in use, attached to %v", b.nodes())
	}
}

// An attachment counts although its PersistentVolume is gone, whenever the controller was restarted: the
// volume may have another PersistentVolume.
func TestAttachmentOutlivesPersistentVolume(t *testing.T) {
	for _, restart := range []string{"never", "before", "after"} {
		t.Run("restarted "+restart, func(t *testing.T) {
			b := newBench(t)
			b.attached("a")
			if restart == "before" {
				b.reconciler = newReconciler(b.Env())
				if _, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "csi.example.com", Name: "other"}}); err != nil {
					t.Fatal(err)
				}
			}
			b.second("b", corev1.ReadWriteOnce)
			node := b.node("a")
			node.Status.VolumesAttached = nil
			b.Must(b.API.Status().Update(ctx, node))
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
			b.Must(b.API.Delete(ctx, v))
			b.Sync()
			if restart == "after" {
				b.reconciler = newReconciler(b.Env())
			}
			if b.reconcile(); !slices.Equal(b.nodes(), []string{"a (deleting)"}) {
				t.Fatalf("attached to %v", b.nodes())
			}
			b.drive()
			if b.reconcile(); !slices.Equal(b.nodes(), []string{"b"}) {
				t.Errorf("attached to %v", b.nodes())
			}
		})
	}
}
