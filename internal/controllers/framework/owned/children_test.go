// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// The list, the ledger and the claim together give one view of an owner's pods.
func TestChildrenListsOverlaysAndClaims(t *testing.T) {
	ctx := context.Background()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rs"}}
	w := controltest.New(t, rs)
	elsewhere := newPod("elsewhere", "web", nil)
	elsewhere.Namespace = "other"
	deleted := newPod("deleted", "web", rs)
	for _, pod := range []*corev1.Pod{
		newPod("cached", "web", rs), deleted, newPod("astray", "db", rs),
		newPod("orphan", "web", nil), newPod("stranger", "db", nil), elsewhere,
	} {
		w.Must(w.API.Create(ctx, pod))
	}
	w.Sync()
	env, ledger := w.Env(), owned.NewLedger[*corev1.Pod](w.Seen)
	written := newPod("written", "web", rs)
	w.Must(env.Client.Create(ctx, written))
	ledger.Wrote(rs, written)
	ledger.Deleted(rs, deleted)
	children := owned.Children[*corev1.Pod]{Kind: rsKind, Finalizer: "test/mine", Client: env.Client, Live: env.Live, Ledger: ledger, List: pods.List}
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})

	candidates, err := children.Candidates(ctx, rs, selector)
	w.Must(err)
	if diff := cmp.Diff([]string{"astray", "cached", "orphan", "written"}, names(candidates)); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	claimed, err := children.Find(ctx, rs, selector)
	w.Must(err)
	if diff := cmp.Diff([]string{"cached", "orphan", "written"}, names(claimed)); diff != "" {
		t.Errorf("children (-want +got):\n%s", diff)
	}
	adopted := &corev1.Pod{}
	w.Must(w.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "orphan"}, adopted))
	if !metav1.IsControlledBy(adopted, rs) || !slices.Contains(adopted.Finalizers, "test/mine") {
		t.Errorf("adopted as %+v", adopted.ObjectMeta)
	}
}

func names(of []*corev1.Pod) (out []string) {
	for _, pod := range of {
		out = append(out, pod.Name)
	}
	slices.Sort(out)
	return out
}
