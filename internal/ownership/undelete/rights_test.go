// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestRightsToSomeObjects checks that permissions for single objects by name are sufficient, except
// for create.
func TestRightsToSomeObjects(t *testing.T) {
	const tooMany = "you may not write all objects of a kind, and there are more than 300 to check by name: ask a user who may write all of them"
	everySecret := func(string, string, string) bool { return true }
	for name, tt := range map[string]struct {
		secrets   int
		forbidden []string
		named     func(verb, kind, name string) bool
		problems  []string
		asked     int
	}{
		"each object by name": {3, []string{"get Secret", "update Secret", "patch Secret"}, everySecret, nil, 9},
		"all objects but one": {3, []string{"update Secret"}, func(_, _, name string) bool { return name != "s1" },
			[]string{"you may not update Secret"}, 2},
		"nothing":                                {3, []string{"update Secret", "patch Secret"}, func(string, string, string) bool { return false }, []string{"you may not update Secret", "you may not patch Secret"}, 2},
		"all objects but one may be read":        {3, []string{"get Secret"}, func(_, _, name string) bool { return name != "s1" }, []string{"the objects to restore include some that you may not read (1): ask a user who may read them"}, 3},
		"create has no name":                     {3, []string{"create Secret"}, everySecret, []string{"you may not create Secret"}, 0},
		"as many objects as are checked by name": {namedLimit, []string{"update Secret", "patch Secret"}, everySecret, nil, 2 * namedLimit},
		"more objects than are checked by name":  {namedLimit + 1, []string{"update Secret", "patch Secret"}, everySecret, []string{tooMany}, 2 * namedLimit},
		"more objects, and none may be read":     {namedLimit + 50, []string{"get Secret"}, func(string, string, string) bool { return false }, []string{tooMany}, namedLimit},
	} {
		t.Run(name, func(t *testing.T) {
			graph := []*unstructured.Unstructured{object("ConfigMap", "root")}
			for i := range tt.secrets {
				graph = append(graph, object("Secret", fmt.Sprint("s", i), ownedBy("root")))
			}
			w := deleted(t, graph)
			w.forbidden, w.named = tt.forbidden, tt.named
			dry := request("ConfigMap", "root")
			dry.DryRun = true
			report, err := w.cluster.Run(t.Context(), dry)
			if err != nil {
				t.Fatal(err)
			}
			want := ownership.UndeletionPlanned
			if len(tt.problems) > 0 {
				want = ownership.UndeletionRefused
			}
			if report.Phase != want || !slices.Equal(report.Problems, tt.problems) || w.asked != tt.asked {
				t.Errorf("%s, problems %q, asked %d times", report.Phase, report.Problems, w.asked)
			}
		})
	}
}

// TestEndedPodByItsName checks that the permission to update a status may be limited to one object.
func TestEndedPodByItsName(t *testing.T) {
	for name, want := range map[string]ownership.UndeletionOutcome{"pod": ownership.UndeletionPending, "other": ownership.UndeletionLeft} {
		ended := object("Pod", "pod", ownedBy("root"), set("Succeeded", "status", "phase"))
		w := deleted(t, []*unstructured.Unstructured{object("Job", "root"), ended})
		w.forbidden = []string{"update Pod/status"}
		w.named = func(_, _, asked string) bool { return asked == name }
		dry := request("Job", "root")
		dry.DryRun = true
		report, err := w.cluster.Run(t.Context(), dry)
		if err != nil || report.Items[1].Outcome != want {
			t.Errorf("permission for the status of %q: %v, %v", name, err, outcomesOf(report.Items))
		}
	}
}
