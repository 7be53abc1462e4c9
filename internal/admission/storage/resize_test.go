// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func claim(size, class string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "data"}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	if class != "" {
		c.Spec.StorageClassName = &class
	}
	return c
}

func TestResize(t *testing.T) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	plugin := NewResize()
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetReadyFunc(func() bool { return true })
	for name, allowed := range map[string]*bool{"elastic": ptr.To(true), "fixed": ptr.To(false), "silent": nil} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, AllowVolumeExpansion: allowed}
		if err := factory.Storage().V1().StorageClasses().Informer().GetIndexer().Add(class); err != nil {
			t.Fatal(err)
		}
	}
	const (
		unbound    = "Only bound persistent volume claims can be expanded"
		impossible = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	)
	for _, test := range []struct {
		name, resource string
		now, old       *corev1.PersistentVolumeClaim
		want           string
	}{
		{"grows", "persistentvolumeclaims", claim("2Gi", "elastic", ""), claim("1Gi", "elastic", "Bound"), ""},
		{"not bound", "persistentvolumeclaims", claim("2Gi", "elastic", "Bound"), claim("1Gi", "elastic", "Pending"), unbound},
		{"a class without expansion", "persistentvolumeclaims", claim("2Gi", "fixed", ""), claim("1Gi", "fixed", "Bound"), impossible},
		{"a class without the field", "persistentvolumeclaims", claim("2Gi", "silent", ""), claim("1Gi", "silent", "Bound"), impossible},
		{"a missing class", "persistentvolumeclaims", claim("2Gi", "gone", ""), claim("1Gi", "gone", "Bound"), impossible},
		{"no class", "persistentvolumeclaims", claim("2Gi", "", ""), claim("1Gi", "", "Bound"), impossible},
		{"another class", "persistentvolumeclaims", claim("2Gi", "elastic", ""), claim("1Gi", "fixed", "Bound"), impossible},
		{"shrinks", "persistentvolumeclaims", claim("1Gi", "fixed", ""), claim("2Gi", "fixed", "Bound"), ""},
		{"keeps its size", "persistentvolumeclaims", claim("1Gi", "fixed", ""), claim("1024Mi", "fixed", "Bound"), ""},
		{"a subresource", "persistentvolumeclaims/status", claim("2Gi", "fixed", ""), claim("1Gi", "fixed", "Bound"), ""},
		{"another kind", "configmaps", claim("2Gi", "fixed", ""), claim("1Gi", "fixed", "Bound"), ""},
	} {
		r := admissiontest.Request{Operation: admission.Update, Resource: test.resource, Object: test.now, Old: test.old}
		err := plugin.Validate(t.Context(), r.Attributes(), nil)
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
