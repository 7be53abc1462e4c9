// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestAnotherIsFaster: a second undeletion of the same root does all of its work just before some
// request of the first one, whichever that is. Both end, and count the same objects.
func TestAnotherIsFaster(t *testing.T) {
	want := []string{"root Restored", "child Restored", "grandchild Restored"}
	for before := 1; ; before++ {
		a := newArchive(t, rand.New(rand.NewPCG(1, 0)))
		uid := a.create(object("ConfigMap", "root"))
		refs := func(kind, called string) []metav1.OwnerReference {
			return []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: called, UID: uid, Controller: new(true)}}
		}
		child := object("Secret", "child")
		child.SetOwnerReferences(refs("ConfigMap", "root"))
		uid = a.create(child)
		grandchild := object("Secret", "grandchild", set("x", "status", "seen"))
		grandchild.SetOwnerReferences(refs("Secret", "child"))
		a.create(grandchild)
		picture := a.picture()
		a.ask(nameOf(object("ConfigMap", "root")), metav1.DeletePropagationBackground)
		a.collect()

		requests, other := 0, (*Report)(nil)
		second := *a.cluster
		second.Caller = a.client() // The first one's is busy with its request.
		second.Objects = second.Caller
		a.cluster.Caller.(*dynamicfake.FakeDynamicClient).PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if requests++; requests != before {
				return false, nil, nil
			}
			var err error
			if other, err = second.Run(t.Context(), request("ConfigMap", "root")); err != nil || other.Phase != ownership.UndeletionComplete {
				t.Errorf("before request %d, the second one: %v, %+v", before, err, other)
			}
			return false, nil, nil
		})
		report, err := a.cluster.Run(t.Context(), request("ConfigMap", "root"))
		if err != nil {
			t.Fatalf("before request %d: %v", before, err)
		}
		said := saidOf(report.Items)
		already := slices.Equal(said, []string{"root Unchanged"})
		if report.Phase != ownership.UndeletionComplete || !already && !slices.Equal(said, want) {
			t.Errorf("before request %d: %s, %q, %v", before, report.Phase, report.Problems, said)
		}
		if now := a.picture(); now != picture {
			t.Errorf("before request %d:\n%s", before, fmt.Sprint(now))
		}
		if other == nil {
			if before < 10 {
				t.Errorf("an undeletion makes %d requests", before)
			}
			return
		}
	}
}
