// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
)

// TestFinalizer: a Secret never has an owner that is gone. The KindredConfig has its finalizer before its Secret is created, and nothing is created once it
// is being deleted.
func TestFinalizer(t *testing.T) {
	b := newBed(bootstrapv1.Node)
	r, c := b.start(t)
	key := client.ObjectKeyFromObject(b.config)
	secrets := 0
	r.Client = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, isSecret := object.(*corev1.Secret); !isSecret {
				return c.Create(ctx, object, options...)
			}
			secrets++
			if err := c.Delete(ctx, b.config); err != nil { // by another client, just before the write
				t.Fatal(err)
			}
			if err := c.Get(ctx, key, b.config); err != nil || !controllerutil.ContainsFinalizer(b.config, bootstrapv1.Finalizer) {
				t.Errorf("the Secret is created with the owner %v, %v", b.config.Finalizers, err)
			}
			return c.Create(ctx, object, options...)
		},
	})
	var err error
	for range 3 { // the first time, the status is written to an older version
		_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	}
	if err != nil {
		t.Error(err)
	}
	if secrets != 1 {
		t.Errorf("%d Secrets were created, want 1", secrets)
	}
	if err := c.Get(t.Context(), key, b.config); !apierrors.IsNotFound(err) {
		t.Errorf("the KindredConfig is still there: %v, finalizers %v", err, b.config.Finalizers)
	}
}

// TestDeletedBefore: a KindredConfig that is deleted before it has bootstrap data gets none, and goes, also if its Cluster is paused or its Machine is gone.
func TestDeletedBefore(t *testing.T) {
	for name, change := range map[string]func(*bed){
		"reconciled":      func(*bed) {},
		"paused":          func(b *bed) { b.cluster.Spec.Paused = ptr.To(true) },
		"without Machine": func(b *bed) { b.config.OwnerReferences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(bootstrapv1.Node)
			b.config.Finalizers = []string{bootstrapv1.Finalizer}
			change(b)
			r, c := b.start(t)
			if err := c.Delete(t.Context(), b.config); err != nil {
				t.Fatal(err)
			}
			key := client.ObjectKeyFromObject(b.config)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), key, b.config); !apierrors.IsNotFound(err) {
				t.Errorf("the KindredConfig is still there: %v, finalizers %v", err, b.config.Finalizers)
			}
			if err := c.Get(t.Context(), key, &corev1.Secret{}); !apierrors.IsNotFound(err) {
				t.Errorf("it has bootstrap data: %v", err)
			}
		})
	}
}
