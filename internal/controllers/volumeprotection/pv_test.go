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
			volume := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: test.finalizers},
				Status:     corev1.PersistentVolumeStatus{Phase: test.phase},
			}
			w := controltest.New(t, volume)
			if test.deleted {
				w.Must(w.API.Delete(t.Context(), volume))
			}
			w.Sync()
			key := client.ObjectKey{Name: "v"}
			if _, err := newVolumeProtector(w.Env()).Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
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
