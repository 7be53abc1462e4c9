// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned_test

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

func TestConfirm(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		change func(*controltest.World, *appsv1.ReplicaSet)
		want   bool
	}{
		"exists":  {func(*controltest.World, *appsv1.ReplicaSet) {}, true},
		"changed": {func(w *controltest.World, rs *appsv1.ReplicaSet) { rs.ResourceVersion = "1" }, true},
		"deleted": {func(w *controltest.World, rs *appsv1.ReplicaSet) { w.Must(w.API.Delete(ctx, rs.DeepCopy())) }, false},
		"another": {func(w *controltest.World, rs *appsv1.ReplicaSet) { rs.UID = "of-old" }, false},
		"terminating": {func(w *controltest.World, rs *appsv1.ReplicaSet) {
			held := rs.DeepCopy()
			held.Finalizers = []string{"test/hold"}
			w.Must(w.API.Update(ctx, held))
			w.Must(w.API.Delete(ctx, held))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs"}}
			w := controltest.New(t, rs)
			test.change(w, rs)
			got, err := owned.Confirm(ctx, w.API, rs)
			if err != nil || got != test.want {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
