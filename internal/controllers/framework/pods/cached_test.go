// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// TestCached compares the lists of Cached with those of the cache itself.
func TestCached(t *testing.T) {
	ctx := t.Context()
	w := controltest.New(t)
	for _, namespace := range []string{"a", "b"} {
		for name, owner := range map[string]string{"x": "1", "y": "1", "z": "2", "orphan": ""} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"name": name}}}
			if owner != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "K", Name: owner, UID: types.UID(owner), Controller: new(true)}}
			}
			w.Must(w.API.Create(ctx, pod))
		}
	}
	var env control.Env
	w.Run(t, control.Controller{Name: "test", Add: func(e control.Env) error {
		env = e
		_, err := owned.Index(context.Background(), e.Manager.GetCache(), &corev1.Pod{})
		return err
	}})
	shared := client.UnsafeDisableDeepCopy
	for name, options := range map[string][]client.ListOption{
		"all":                        {shared},
		"of a namespace":             {shared, client.InNamespace("a")},
		"with a label":               {shared, client.MatchingLabels{"name": "x"}},
		"and in a namespace":         {shared, client.InNamespace("a"), client.MatchingLabels{"name": "x"}},
		"of an owner":                {shared, client.MatchingFields{owned.ControllerIndex: "1"}},
		"of an owner in a namespace": owned.By("a", "1"),
		"without an owner":           owned.By("b", owned.Orphan),
		"of an owner with a label":   append(owned.By("a", "1"), client.MatchingLabels{"name": "y"}),
		"copied":                     {client.InNamespace("a")},
		"none":                       owned.By("c", "1"),
		"an unknown index":           {client.MatchingFields{"other": "1"}},
		"two indexes":                {client.MatchingFields{owned.ControllerIndex: "1", "other": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			list := &corev1.PodList{}
			wantErr := env.Manager.GetCache().List(ctx, list, options...)
			got, err := pods.Cached{Cache: env.Manager.GetCache()}.ListPods(ctx, options...)
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%v, and the cache: %v", err, wantErr)
			}
			if err != nil {
				return
			}
			want := owned.Pointers(list.Items)
			for _, list := range [][]*corev1.Pod{got, want} {
				slices.SortFunc(list, func(a, b *corev1.Pod) int {
					return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
				})
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pods (-the cache +got):\n%s", diff)
			}
		})
	}
}
