// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func TestInUse(t *testing.T) {
	with := func(finalizers ...string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "x", Finalizers: finalizers}
	}
	for name, test := range map[string]struct {
		resource string
		obj      interface {
			runtime.Object
			metav1.Object
		}
		want []string
	}{
		"volume":                {"persistentvolumes", &corev1.PersistentVolume{ObjectMeta: with()}, []string{"kubernetes.io/pv-protection"}},
		"claim":                 {"persistentvolumeclaims", &corev1.PersistentVolumeClaim{ObjectMeta: with("a/b")}, []string{"a/b", "kubernetes.io/pvc-protection"}},
		"finalizer exists":      {"persistentvolumeclaims", &corev1.PersistentVolumeClaim{ObjectMeta: with("kubernetes.io/pvc-protection", "a/b")}, []string{"kubernetes.io/pvc-protection", "a/b"}},
		"VolumeAttributesClass": {"volumeattributesclasses.storage.k8s.io", &storagev1.VolumeAttributesClass{ObjectMeta: with()}, []string{"kubernetes.io/vac-protection"}},
		"subresource":           {"persistentvolumes/status", &corev1.PersistentVolume{ObjectMeta: with()}, nil},
		"another kind":          {"configmaps", &corev1.ConfigMap{ObjectMeta: with()}, nil},
	} {
		if err := NewInUse().Admit(context.Background(), admissiontest.Request{Operation: admission.Create, Resource: test.resource, Object: test.obj}.Attributes(), nil); err != nil {
			t.Fatal(err)
		}
		if got := test.obj.GetFinalizers(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if plugin := NewInUse(); plugin.Handles(admission.Update) {
		t.Error("an update would add the finalizer again after its controller removed it")
	}
}
