// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestHeld checks that Held lists the objects on hold, until they are released or deleted.
func TestHeld(t *testing.T) {
	g := New()
	things := Resource{GroupVersionResource: schema.GroupVersionResource{Group: "t", Version: "v1", Resource: "things"}, Kind: "Thing", Namespaced: true, Watched: true}
	g.Serve(things)
	object := func(version, hold string) *metav1.ObjectMeta {
		o := &metav1.ObjectMeta{Namespace: "a", Name: "one", UID: "00000000-0000-0000-0000-000000000001", ResourceVersion: version}
		if hold != "" {
			o.Annotations = map[string]string{ownership.HoldAnnotation: hold}
		}
		return o
	}
	for _, step := range []struct {
		version, hold string
		held          int
	}{{"1", "", 0}, {"2", "x", 1}, {"3", "y", 1}, {"2", "", 1}, {"4", "", 0}, {"5", "z", 1}} {
		o := object(step.version, step.hold)
		g.Observe(things.GroupResource(), o)
		known, _ := g.Object(o.UID)
		if held := g.Held(); len(held) != step.held || known.Held != (step.held == 1) {
			t.Errorf("version %s: %d held, %v", step.version, len(held), known.Held)
		}
	}
	g.Forget(things.GroupResource(), object("6", "z"))
	if held := g.Held(); len(held) != 0 {
		t.Errorf("after the deletion: %+v", held)
	}
}
