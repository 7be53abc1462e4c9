// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

func TestDefaultAccountIsCreated(t *testing.T) {
	ctx := context.Background()
	namespace := func(name string, phase corev1.NamespacePhase) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}}
	}
	w := controltest.New(t, namespace("new", corev1.NamespaceActive), namespace("terminating", corev1.NamespaceTerminating))
	r := &accountReconciler{client: w.Env().Client}
	for _, name := range []string{"new", "new", "terminating", "missing"} { // the second time with a stale cache
		if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	accounts := &corev1.ServiceAccountList{}
	w.Must(w.API.List(ctx, accounts))
	if len(accounts.Items) != 1 || accounts.Items[0].Namespace != "new" || accounts.Items[0].Name != "default" {
		t.Errorf("accounts %v", accounts.Items)
	}
	w.Must(w.API.Delete(ctx, &accounts.Items[0]))
	w.Sync()
	w.Refuse = func(string, client.Object) error { return errors.New("no") }
	req := ctrl.Request{NamespacedName: client.ObjectKey{Name: "new"}}
	if _, err := r.Reconcile(ctx, req); err == nil {
		t.Error("no error, so the request is not retried")
	}
	w.Refuse = nil
	_, err := r.Reconcile(ctx, req)
	w.Must(err)
	if err := w.API.Get(ctx, client.ObjectKey{Namespace: "new", Name: "default"}, &corev1.ServiceAccount{}); apierrors.IsNotFound(err) {
		t.Error("a deleted account is not created again")
	}
}
