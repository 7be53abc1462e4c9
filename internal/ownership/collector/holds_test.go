// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// TestEventsForHolds: an object that stays on hold gets one event, and another one if it is put on
// hold again. An object that is released in time or deleted gets none.
func TestEventsForHolds(t *testing.T) {
	a, events := newAPI(configMaps, secrets), record.NewFakeRecorder(10)
	object := a.create(configMaps, "default", "held")
	annotate := func(annotations map[string]string) {
		a.update(configMaps, "default", "held", func(o *metav1.PartialObjectMetadata) { o.Annotations = annotations })
	}
	c, _ := start(t, a, func(o *Options) { o.Events = events })
	heldIs := func(n int) {
		t.Helper()
		eventually(t, "the holds are seen", func() (is bool) {
			c.View(func(g *graph.Graph) { is = len(g.Held()) == n })
			return is
		})
	}
	told := func(want string, known holds) holds {
		t.Helper()
		known = c.reportHolds(t.Context(), known)
		select {
		case got := <-events.Events:
			if got != want {
				t.Errorf("events %q, want %q", got, want)
			}
		default:
			if want != "" {
				t.Errorf("missing events: %q", want)
			}
		}
		return known
	}
	const byHand = `Normal OwnershipHold on hold: controllers are paused for it by its annotation ownership.kindred.dev/hold; release it with "kubectl annotate -n default configmap/held ownership.kindred.dev/hold-"`
	annotate(map[string]string{ownership.HoldAnnotation: "by hand"})
	heldIs(1)
	known := told("", holds{})
	known = told(byHand, known)
	known = told("", known)
	annotate(nil)
	heldIs(0)
	known = told("", known)
	annotate(map[string]string{ownership.HoldAnnotation: `{"root":"r","from":"f","for":"ConfigMap/held","of":"Stack.example.com/root"}`})
	heldIs(1)
	known = told("", known)
	known = told(`Warning OwnershipHold on hold: the undeletion of stack.example.com/root is not finished; continue with "kindred undelete -n default stack.example.com/root"`, known)
	remove(t, a, object, metav1.DeletePropagationBackground)
	heldIs(0)
	if known = told("", known); len(known) > 0 {
		t.Errorf("%v", known)
	}
}
