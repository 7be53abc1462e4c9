// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned_test

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

type failingReader struct{ client.Reader }

func (failingReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the cache has not started")
}

func TestFetch(t *testing.T) {
	deployment := func(name string, annotations map[string]string) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: annotations}}
	}
	w := controltest.New(t, deployment("free", nil), deployment("held", map[string]string{ownership.HoldAnnotation: ""}))
	for _, tt := range []struct {
		name              string
		from              client.Reader
		want, gone, fails bool
	}{
		{name: "free", from: w.API, want: true},
		{name: "held", from: w.API},
		{name: "deleted", from: w.API, gone: true},
		{name: "unknown", from: failingReader{}, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forgotten := 0
			forget := func(key types.NamespacedName) {
				if key.Name == tt.name {
					forgotten++
				}
			}
			got, err := owned.Fetch(context.Background(), tt.from, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: tt.name}}, &appsv1.Deployment{}, forget, forget)
			if got != tt.want || (forgotten == 2) != tt.gone || (err != nil) != tt.fails {
				t.Errorf("reconcile %v, forgotten %d, error %v", got, forgotten, err)
			}
		})
	}
}
