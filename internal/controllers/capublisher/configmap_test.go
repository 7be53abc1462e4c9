// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package capublisher

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

func TestConfigMapIsCreatedAndRepaired(t *testing.T) {
	ctx := context.Background()
	key := client.ObjectKey{Namespace: "ns", Name: "kube-root-ca.crt"}
	active := corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	for name, prepare := range map[string]func(*controltest.World){
		"missing": func(*controltest.World) {},
		"exists, but is not cached": func(w *controltest.World) {
			w.Must(w.API.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: key.Name, Annotations: map[string]string{descriptionKey: description}},
				Data:       map[string]string{"ca.crt": "PEM"},
			}))
		},
		"other data": func(w *controltest.World) {
			w.Must(w.API.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: key.Name}, Data: map[string]string{"ca.crt": "old", "x": "y"}}))
			w.Sync()
		},
		"no description": func(w *controltest.World) {
			w.Must(w.API.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: key.Name}, Data: map[string]string{"ca.crt": "PEM"}}))
			w.Sync()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := controltest.New(t,
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Status: active},
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "terminating"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}})
			prepare(w)
			r := &configMapReconciler{client: w.Env().Client, ca: "PEM"}
			for _, ns := range []string{"ns", "terminating", "missing"} {
				if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: ns}}); err != nil {
					t.Fatal(err)
				}
			}
			all := &corev1.ConfigMapList{}
			w.Must(w.API.List(ctx, all))
			if len(all.Items) != 1 {
				t.Fatalf("%d ConfigMaps", len(all.Items))
			}
			got := all.Items[0]
			if diff := cmp.Diff(map[string]string{"ca.crt": "PEM"}, got.Data); diff != "" || got.Annotations[descriptionKey] != description {
				t.Errorf("annotations %v, data (-want +got):\n%s", got.Annotations, diff)
			}
			// Nothing is written if nothing has changed.
			w.Sync()
			w.Refuse = func(verb string, obj client.Object) error {
				t.Errorf("%s %s", verb, obj.GetName())
				return nil
			}
			_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "ns"}})
			w.Must(err)
		})
	}
}
