// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeprotection

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

func TestVolumeFinalizer(t *testing.T) {
	for name, test := range map[string]struct {
		finalizers []string
		phase      corev1.PersistentVolumePhase
		deleted    bool
		want       []string // nil if removed
	}{
		"new":                       {[]string{"a/b", volumeFinalizer}, corev1.VolumeAvailable, false, []string{"a/b", volumeFinalizer}},
		"older object":              {[]string{"a/b"}, corev1.VolumeBound, false, []string{"a/b", volumeFinalizer}},
		"deleted while bound":       {[]string{volumeFinalizer}, corev1.VolumeBound, true, []string{volumeFinalizer}},
		"deleted while released":    {[]string{volumeFinalizer}, corev1.VolumeReleased, true, nil},
		"another finalizer":         {[]string{"a/b", volumeFinalizer}, corev1.VolumeReleased, true, []string{"a/b"}},
		"finalizer already removed": {[]string{"a/b"}, corev1.VolumeBound, true, []string{"a/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "c"}}
			w := controltest.New(t, claim)
			volume := volumeOf(claim, test.phase, test.finalizers...)
			w.Must(w.API.Create(t.Context(), volume))
			if test.deleted {
				w.Must(w.API.Delete(t.Context(), volume))
			}
			w.Sync()
			key := client.ObjectKey{Name: "v"}
			if _, err := newVolumeProtector(w.Env(), w.API).Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			got := &corev1.PersistentVolume{}
			if err := w.API.Get(t.Context(), key, got); apierrors.IsNotFound(err) != (test.want == nil) {
				t.Fatal(err)
			}
			if !slices.Equal(got.Finalizers, test.want) {
				t.Errorf("%q, want %q", got.Finalizers, test.want)
			}
		})
	}
}

func volumeOf(claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumePhase, finalizers ...string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: finalizers},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}},
		Status:     corev1.PersistentVolumeStatus{Phase: phase},
	}
}

// Nothing updates the phase after the claim is deleted.
func TestVolumeOfADeletedClaim(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *controltest.World, claim *corev1.PersistentVolumeClaim)
		free   bool
	}{
		"exists": {func(*controltest.World, *corev1.PersistentVolumeClaim) {}, false},
		"deleted": {func(w *controltest.World, claim *corev1.PersistentVolumeClaim) {
			w.Must(w.API.Delete(t.Context(), claim))
			w.Sync()
		}, true},
		"deleted, but still cached": {func(w *controltest.World, claim *corev1.PersistentVolumeClaim) {
			w.Must(w.API.Delete(t.Context(), claim))
		}, false},
		"another claim of that name": {func(w *controltest.World, claim *corev1.PersistentVolumeClaim) {
			w.Must(w.API.Delete(t.Context(), claim))
			claim.ResourceVersion = ""
			w.Must(w.API.Create(t.Context(), claim))
			w.Sync()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "c"}}
			w := controltest.New(t, claim)
			volume := volumeOf(claim, corev1.VolumeBound, volumeFinalizer)
			w.Must(w.API.Create(t.Context(), volume))
			w.Must(w.API.Delete(t.Context(), volume))
			w.Sync()
			test.change(w, claim)
			if _, err := newVolumeProtector(w.Env(), w.API).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(volume)}); err != nil {
				t.Fatal(err)
			}
			if free := apierrors.IsNotFound(w.API.Get(t.Context(), client.ObjectKeyFromObject(volume), volume)); free != test.free {
				t.Errorf("removed: %v", free)
			}
		})
	}
}

// The API has the claim, but the cache does not have it yet.
func TestVolumeOfANewClaim(t *testing.T) {
	w := controltest.New(t)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "c"}}
	volume := volumeOf(claim, corev1.VolumeBound, volumeFinalizer)
	w.Must(w.API.Create(t.Context(), volume))
	w.Must(w.API.Delete(t.Context(), volume))
	w.Sync()
	w.Must(w.API.Create(t.Context(), claim))
	if _, err := newVolumeProtector(w.Env(), w.API).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(volume)}); err != nil {
		t.Fatal(err)
	}
	if err := w.API.Get(t.Context(), client.ObjectKeyFromObject(volume), volume); err != nil {
		t.Errorf("released a volume in use: %v", err)
	}
}
