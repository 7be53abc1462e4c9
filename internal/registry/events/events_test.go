// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"github.com/kindred-project/kindred/internal/registry/core"
)

// TestRoundTrip checks that conversion to the other form and back preserves an event.
func TestRoundTrip(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(1, 3)
	for range 200 {
		var newer, back eventsv1.Event
		fill.Fill(&newer)
		newer.Kind, newer.APIVersion = "", ""
		var stored corev1.Event
		toCore(&newer, &stored)
		fromCore(&stored, &back)
		if diff := cmp.Diff(newer, back); diff != "" {
			t.Fatalf("events.k8s.io/v1 (-before +after):\n%s", diff)
		}
		var older, again corev1.Event
		fill.Fill(&older)
		older.Kind, older.APIVersion = "", ""
		fromCore(&older, &newer)
		toCore(&newer, &again)
		if diff := cmp.Diff(older, again); diff != "" {
			t.Fatalf("v1 (-before +after):\n%s", diff)
		}
	}
}

func TestConversionsOfTheScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, group := range []interface {
		Register(*runtime.Scheme) error
	}{core.Group(core.Dependencies{}), Group()} {
		if err := group.Register(scheme); err != nil {
			t.Fatal(err)
		}
	}
	list := &eventsv1.EventList{Items: make([]eventsv1.Event, 2)}
	list.ResourceVersion, list.Items[0].Note = "7", "note"
	var stored corev1.EventList
	if err := scheme.Convert(list, &stored, nil); err != nil || stored.Items[0].Message != "note" || stored.ResourceVersion != "7" {
		t.Errorf("%+v, %v", stored, err)
	}
	var back eventsv1.EventList
	if err := scheme.Convert(&stored, &back, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list, &back); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	kind := eventsv1.SchemeGroupVersion.WithKind("Event")
	for label, want := range map[string]string{
		"regarding.name": "involvedObject.name", "reportingController": "reportingComponent", "reason": "reason", "metadata.name": "metadata.name", "note": "",
	} {
		if got, _, err := scheme.ConvertFieldLabel(kind, label, "x"); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", label, got, err, want)
		}
	}
}

// TestFieldLabels checks that fields are selected by the names of this group, not of the core
// group.
func TestFieldLabels(t *testing.T) {
	e := event{core.Event}
	for label, want := range map[string]string{
		"regarding.kind": "involvedObject.kind", "reportingController": "reportingComponent",
		"reason": "reason", "type": "type", "metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace",
		"involvedObject.kind": "", "reportingComponent": "", "source": "", "note": "",
	} {
		got, _, err := e.fieldLabel(label, "a")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", label, got, err, want)
		}
	}
}
