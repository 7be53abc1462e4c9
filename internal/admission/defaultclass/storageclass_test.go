// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package defaultclass

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func TestStorageClass(t *testing.T) {
	class := func(name, key string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{key: "true"}}}
	}
	claim := func(class *string, annotations map[string]string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class}}
	}
	plain := class("plain", "other")
	marked, before := class("marked", "storageclass.kubernetes.io/is-default-class"), class("before", "storageclass.beta.kubernetes.io/is-default-class")
	for name, test := range map[string]struct {
		resource string
		classes  []*storagev1.StorageClass
		claim    *corev1.PersistentVolumeClaim
		want     *string
	}{
		"no default":                        {"persistentvolumeclaims", []*storagev1.StorageClass{plain}, claim(nil, nil), nil},
		"default is set":                    {"persistentvolumeclaims", []*storagev1.StorageClass{plain, marked}, claim(nil, nil), ptr.To("marked")},
		"default by beta annotation is set": {"persistentvolumeclaims", []*storagev1.StorageClass{plain, before}, claim(nil, nil), ptr.To("before")},
		"class is kept":                     {"persistentvolumeclaims", []*storagev1.StorageClass{marked}, claim(ptr.To("own"), nil), ptr.To("own")},
		"empty class is kept":               {"persistentvolumeclaims", []*storagev1.StorageClass{marked}, claim(ptr.To(""), nil), ptr.To("")},
		"class in an annotation is kept":    {"persistentvolumeclaims", []*storagev1.StorageClass{marked}, claim(nil, map[string]string{"volume.beta.kubernetes.io/storage-class": "own"}), nil},
		"subresource is ignored":            {"persistentvolumeclaims/status", []*storagev1.StorageClass{marked}, claim(nil, nil), nil},
		"another resource is ignored":       {"configmaps", []*storagev1.StorageClass{marked}, claim(nil, nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			factory := informers.NewSharedInformerFactory(nil, 0)
			plugin := NewStorageClass()
			plugin.SetExternalKubeInformerFactory(factory)
			plugin.SetReadyFunc(func() bool { return true })
			for _, class := range test.classes {
				if err := factory.Storage().V1().StorageClasses().Informer().GetIndexer().Add(class); err != nil {
					t.Fatal(err)
				}
			}
			r := admissiontest.Request{Operation: admission.Create, Resource: test.resource, Object: test.claim}
			if err := plugin.Admit(t.Context(), r.Attributes(), nil); err != nil {
				t.Fatal(err)
			}
			if got := test.claim.Spec.StorageClassName; !ptr.Equal(got, test.want) {
				t.Errorf("%v, want %v", ptr.Deref(got, "none"), ptr.Deref(test.want, "none"))
			}
		})
	}
}
