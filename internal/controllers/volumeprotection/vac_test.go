// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeprotection

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var classKey = client.ObjectKey{Name: "gold"}

func gold() *storagev1.VolumeAttributesClass {
	return &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold", Finalizers: []string{classFinalizer}}}
}

func claimUsing(edit func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "c"}}
	edit(c)
	return c
}

func TestClassUsers(t *testing.T) {
	for name, test := range map[string]struct {
		user client.Object
		want bool
	}{
		"volume of another class": {&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{VolumeAttributesClassName: new("silver")}}, false},
		"volume":                  {&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{VolumeAttributesClassName: new("gold")}}, true},
		"claim":                   {claimUsing(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }), true},
		"claim that still has it": {claimUsing(func(c *corev1.PersistentVolumeClaim) { c.Status.CurrentVolumeAttributesClassName = new("gold") }), true},
		"claim being modified to it": {claimUsing(func(c *corev1.PersistentVolumeClaim) {
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "gold"}
		}), true},
		"claim without a class": {claimUsing(func(*corev1.PersistentVolumeClaim) {}), false},
	} {
		class := gold()
		w := controltest.New(t, class, test.user)
		w.Must(w.API.Delete(t.Context(), class))
		w.Sync()
		if _, err := newClassProtector(w.Env()).Reconcile(t.Context(), ctrl.Request{NamespacedName: classKey}); err != nil {
			t.Fatal(err)
		}
		if err := w.API.Get(t.Context(), classKey, gold()); apierrors.IsNotFound(err) == test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClassIsRemovedAfterItsLastUser(t *testing.T) {
	class, user := gold(), claimUsing(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") })
	w := controltest.New(t, class, user)
	w.Run(t, control.Controller{Name: ClassName, Add: AddClasses})
	w.Must(w.API.Delete(t.Context(), class))
	user.Spec.VolumeAttributesClassName = new("silver")
	w.Must(w.API.Update(t.Context(), user))
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if apierrors.IsNotFound(w.API.Get(t.Context(), classKey, gold())) {
			return
		}
	}
	t.Fatal("the class was not removed")
}
