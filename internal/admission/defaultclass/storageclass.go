// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package defaultclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/storage/v1"

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// StorageClassName is the name of the plugin StorageClass in the API server's
// configuration.
const StorageClassName = "DefaultStorageClass"

// Annotations that mark the default StorageClass: the current one, and the one from
// before storage.k8s.io/v1.
const (
	storageClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaStorageClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// StorageClass gives a new PersistentVolumeClaim without a class the default
// one. A claim with the empty class is left alone: it requests a volume without
// a class.
type StorageClass struct {
	*informer.Handler[listers.StorageClassLister]
}

var _ admission.MutationInterface = &StorageClass{}

// NewStorageClass returns the plugin.
func NewStorageClass() *StorageClass {
	return &StorageClass{informer.New(StorageClassName, func(f informers.SharedInformerFactory) informer.Informer[listers.StorageClassLister] {
		return f.Storage().V1().StorageClasses()
	}, admission.Create)}
}

// Admit implements admission.MutationInterface.
func (p *StorageClass) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("persistentvolumeclaims") || a.GetSubresource() != "" {
		return nil
	}
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named {
		return nil
	}
	return setDefault(p.Handler, a, &claim.Spec.StorageClassName, storageClassAnnotation, betaStorageClassAnnotation)
}
