// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestPinnedUntilComplete checks that the revision is pinned until all objects are restored, over
// several requests, and not longer.
func TestPinnedUntilComplete(t *testing.T) {
	w := slow(t)
	w.onlyPinned = true
	requests := 0
	for phase := ownership.UndeletionIncomplete; phase != ownership.UndeletionComplete; requests++ {
		report, err := w.cluster.Run(t.Context(), request("ConfigMap", "root"))
		if err != nil {
			t.Fatalf("request %d: %v", requests, err)
		}
		if phase = report.Phase; phase == ownership.UndeletionIncomplete && !slices.Contains(w.pins, 10) {
			t.Error("the revision is not pinned between two requests")
		}
	}
	if requests < 2 || len(w.pins) > 0 {
		t.Errorf("after %d requests %d are pinned", requests, w.pins)
	}
}

// TestNothingStaysPinned checks that dry runs and refused undeletions leave no pin.
func TestNothingStaysPinned(t *testing.T) {
	graph := []*unstructured.Unstructured{object("ConfigMap", "root"), object("Secret", "child", ownedBy("root"))}
	w := deleted(t, graph)
	dry := request("ConfigMap", "root")
	dry.DryRun = true
	if report, err := w.cluster.Run(t.Context(), dry); err != nil || report.Phase != ownership.UndeletionPlanned || len(w.pins) > 0 {
		t.Errorf("a dry run: %v, %v, pinned %d", err, report, w.pins)
	}
	w.forbidden = []string{"create Secret"}
	w.ends(t, "ConfigMap", "root", ownership.UndeletionRefused, "root Pending", "child Denied")
	if len(w.pins) > 0 {
		t.Errorf("refused: pinned %d", w.pins)
	}
}

// TestTooLate checks the error if the state is no longer retained, before and after the undeletion
// has started.
func TestTooLate(t *testing.T) {
	graph := []*unstructured.Unstructured{object("ConfigMap", "root"), object("Secret", "child", ownedBy("root"))}
	const left = "the undeletion cannot continue, because the former state is no longer known: not retained any more; " +
		"restored objects stay on hold until their annotation ownership.kindred.dev/hold is removed, and from pods the scheduling gate of that name"
	for name, tt := range map[string]struct {
		there []*unstructured.Unstructured
		says  string
	}{
		"not started": {nil, "not retained any more"},
		"begun":       {[]*unstructured.Unstructured{object("ConfigMap", "root", withUID("new"), onHold("root", false))}, left},
		"releasing":   {[]*unstructured.Unstructured{object("ConfigMap", "root", withUID("new"), onHold("root", true))}, left},
	} {
		w := deleted(t, graph, tt.there...)
		w.oldest = 11
		_, err := w.cluster.Run(t.Context(), request("ConfigMap", "root"))
		if !apierrors.IsResourceExpired(err) || !strings.HasPrefix(err.Error(), tt.says) || len(w.writes()) > 0 {
			t.Errorf("%s: %v, writes %v", name, err, w.writes())
		}
	}
}
