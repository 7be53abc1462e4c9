// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// treeOf returns an object of a tree. Its UID is its name, and the first owner is the controller.
func treeOf(kind, name string, owners ...string) ownership.TreeObject {
	o := ownership.TreeObject{
		ObjectReference:   ownership.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: "shop", Name: name, UID: types.UID(name)},
		Readiness:         ownership.ReadinessReady,
		CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
	}
	for i, owner := range owners {
		o.Owners = append(o.Owners, ownership.OwnerReference{
			OwnerReference: metav1.OwnerReference{Kind: "Set", Name: owner, UID: types.UID(owner), Controller: new(i == 0)},
			Standing:       ownership.StandingSolid,
		})
	}
	return o
}

func printed(print func(*cobra.Command)) string {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	print(cmd)
	return out.String()
}

func TestPrintTree(t *testing.T) {
	terminating := treeOf("Pod", "leaving", "web")
	terminating.Readiness = ownership.ReadinessTerminating
	terminating.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Minute)}
	terminating.WaitsFor = []ownership.DeletionBlock{{Finalizer: "example.com/hold"}, {Hidden: true}}
	lost := treeOf("Pod", "shared", "web", "elsewhere")
	lost.Owners = append(lost.Owners, ownership.OwnerReference{OwnerReference: metav1.OwnerReference{Kind: "Set", Name: "gone", UID: "gone"}, Standing: ownership.StandingDangling})
	tree := &ownership.OwnershipTree{}
	tree.Status.Object = treeOf("Set", "web").ObjectReference
	tree.Status.Owners = []ownership.TreeObject{treeOf("Set", "top")}
	tree.Status.Objects = []ownership.TreeObject{treeOf("Set", "web", "top"), terminating, lost}
	tree.Status.Hidden = 2
	t.Setenv("COLUMNS", strconv.Itoa(tableWidth))
	printer := treePrinter{clock: clocktesting.NewFakePassiveClock(noon)}
	got := printed(func(cmd *cobra.Command) { printer.print(cmd, tree) })
	want := `Namespace shop
OBJECT             CONTROLLED  READINESS    AGE  NOTES
Set/top                        Ready        60m
└─ Set/web *       yes         Ready        60m
   ├─ Pod/leaving  yes         Terminating  60m  being deleted for 60s; waits for finalizer
                                                 example.com/hold; waits for 1 object that you may
                                                 not read
   └─ Pod/shared   yes         Ready        60m  also owned by Set/elsewhere; owner Set/gone does
                                                 not exist
2 more objects that you may not read
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTreeShowsHolds: a note says why an object is on hold and how to resume.
func TestTreeShowsHolds(t *testing.T) {
	held := treeOf("Set", "web")
	held.Hold = &ownership.Hold{Message: "the undeletion of set/web is not finished", Remedy: `continue with "kindred undelete -n shop set/web"`}
	tree := &ownership.OwnershipTree{}
	tree.Status.Object, tree.Status.Objects = held.ObjectReference, []ownership.TreeObject{held}
	got := printed(func(cmd *cobra.Command) { treePrinter{clock: clocktesting.NewFakePassiveClock(noon)}.print(cmd, tree) })
	if text := strings.Join(strings.Fields(got), " "); !strings.Contains(text, `on hold: continue with "kindred undelete -n shop set/web"`) {
		t.Error(got)
	}
}

// TestFold: many similar objects are folded to a few; objects with a message are always shown.
func TestFold(t *testing.T) {
	tree := &ownership.OwnershipTree{}
	tree.Status.Object = treeOf("Set", "web").ObjectReference
	tree.Status.Objects = []ownership.TreeObject{treeOf("Set", "web")}
	for i := range 30 {
		pod := treeOf("Pod", fmt.Sprintf("pod-%02d", i), "web")
		if i == 20 {
			pod.Finalizers = []string{"example.com/hold"}
		}
		tree.Status.Objects = append(tree.Status.Objects, pod)
	}
	render := func(all bool) string {
		return printed(func(cmd *cobra.Command) { treePrinter{all, clocktesting.NewFakePassiveClock(noon)}.print(cmd, tree) })
	}
	few := render(false)
	for _, want := range []string{"pod-08 ", "pod-20 ", "└─ … 20 more of kind Pod"} {
		if !strings.Contains(few, want) {
			t.Errorf("no %q in\n%s", want, few)
		}
	}
	if strings.Contains(few, "pod-09") {
		t.Errorf("not folded:\n%s", few)
	}
	if all := render(true); strings.Count(all, "Pod/") != 30 || strings.Contains(all, "more of kind") {
		t.Errorf("not all:\n%s", all)
	}
}

// TestTablesFit: long names are shortened, and cycles of owners end.
func TestTablesFit(t *testing.T) {
	long := strings.Repeat("very-long-", 20)
	tree := &ownership.OwnershipTree{}
	tree.Status.Object = treeOf("Set", "a").ObjectReference
	tree.Status.Objects = []ownership.TreeObject{treeOf("Set", "a", "b"), treeOf("Set", "b", "a", long), treeOf("Set", long, "b")}
	table := func(width int) string {
		return treePrinter{clock: clocktesting.NewFakePassiveClock(noon)}.table(tree).render(painter{width: width})
	}
	if all := table(unlimited); strings.Contains(all, "…") || strings.Count(all, "\n") != len(tree.Status.Objects)+1 {
		t.Errorf("cut or wrapped without a width:\n%s", all)
	}
	got := table(tableWidth)
	for line := range strings.Lines(got) {
		// A word that is longer than a line is not broken.
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > tableWidth && !strings.Contains(line, long) {
			t.Errorf("too wide: %s", line)
		}
	}
	for _, want := range []string{"Set/a *", "Set/b", "…"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestDiagrams(t *testing.T) {
	tree := &ownership.OwnershipTree{}
	tree.Status.Owners = []ownership.TreeObject{treeOf("Set", `to"p`)}
	tree.Status.Objects = []ownership.TreeObject{treeOf("Set", "web", `to"p`), treeOf("Pod", "x", "web", `to"p`, "elsewhere")}
	wantDot := `digraph ownership {
  node [shape=box];
  "to\"p" [label="Set\nto\"p"];
  "web" [label="Set\nweb"];
  "x" [label="Pod\nx"];
  "to\"p" -> "web" [style=bold];
  "web" -> "x" [style=bold];
  "to\"p" -> "x" [style=dashed];
}
`
	if diff := cmp.Diff(wantDot, dot(tree)); diff != "" {
		t.Error(diff)
	}
	wantMermaid := `flowchart TD
  o0["Set<br/>to#quot;p"]
  o1["Set<br/>web"]
  o2["Pod<br/>x"]
  o0 ==> o1
  o1 ==> o2
  o0 -.-> o2
`
	if diff := cmp.Diff(wantMermaid, mermaid(tree)); diff != "" {
		t.Error(diff)
	}
}

func TestPrintPreview(t *testing.T) {
	object := func(name string, outcome ownership.DeletionOutcome, owners ...string) ownership.PreviewedObject {
		o := treeOf("Set", name, owners...)
		return ownership.PreviewedObject{ObjectReference: o.ObjectReference, Outcome: outcome, Owners: o.Owners}
	}
	held := object("held", ownership.OutcomeDeleted, "web")
	held.BlockedBy = []ownership.DeletionBlock{{Finalizer: "example.com/hold"}}
	behind := object("behind", ownership.OutcomeDeleted, "held")
	behind.BlockedBy = []ownership.DeletionBlock{{Owner: &held.ObjectReference}}
	kept := object("kept", ownership.OutcomeKept, "web", "other")
	kept.KeptBy = kept.Owners[1:]
	data := object("data", ownership.OutcomeDeleted, "web")
	data.Volume = &ownership.ClaimedVolume{Name: "pvc-1", ReclaimPolicy: "Delete"}
	retained := object("retained", ownership.OutcomeDeleted, "web")
	retained.Volume = &ownership.ClaimedVolume{Name: "pvc-2", ReclaimPolicy: "Retain"}
	secret := object("secret", ownership.OutcomeDeleted, "web")
	secret.Volume = &ownership.ClaimedVolume{Name: "pvc-3"}
	web := object("web", ownership.OutcomeDeleted)
	caused := object("caused", ownership.OutcomeDeleted, "other")
	caused.DeletedWith = &web.ObjectReference
	preview := &ownership.DeletionPreview{Status: ownership.DeletionPreviewStatus{
		Objects: []ownership.PreviewedObject{web, held, behind, kept, data, retained, secret, caused},
		Deleted: 7, Kept: 1, Blocked: 2, Warnings: []string{"a warning"},
	}}
	want := `OBJECT            OUTCOME  NOTES
Set/web           deleted
├─ Set/caused     deleted  a controller deletes it with Set/web
├─ Set/data       deleted  its volume is deleted too, with the data
├─ Set/held       deleted  waits for finalizer example.com/hold
│  └─ Set/behind  deleted
├─ Set/kept       kept     kept by Set/other
├─ Set/retained   deleted  its volume is kept, with the data (reclaim policy Retain)
└─ Set/secret     deleted  its volume may be deleted too, with the data: you may not read its reclaim policy

would be deleted: 7, kept: 1, held up: 2
a warning
`
	got := printed(func(cmd *cobra.Command) { printPreview(cmd, preview, false) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	none := printed(func(cmd *cobra.Command) { printPreview(cmd, &ownership.DeletionPreview{}, false) })
	if none != "nothing would be deleted\n" {
		t.Errorf("printed %q", none)
	}
}

func TestSplitObjects(t *testing.T) {
	for _, tt := range []struct {
		args, want string
	}{
		{"pod/a", "pod a"},
		{"pod/a deploy/b", "pod a, deploy b"},
		{"pod a b", "pod a, pod b"},
		{"pod", `"pod" names no object: use TYPE/NAME, or TYPE NAME`},
		{"pod a/b", `"a/b" after a type is not a name: give either TYPE NAME... or TYPE/NAME...`},
		{"pod/a b", `"b" is not TYPE/NAME`},
		{"pod/", `"pod/" is not TYPE/NAME`},
		{"/a", `"/a" is not TYPE/NAME`},
		{"pod/a/b", `"pod/a/b" is not TYPE/NAME`},
	} {
		objects, err := splitObjects(strings.Fields(tt.args))
		var pairs []string
		for _, o := range objects {
			pairs = append(pairs, o[0]+" "+o[1])
		}
		got := strings.Join(pairs, ", ")
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.args, got, tt.want)
		}
	}
}

func TestDeleteUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"pod/a", "--cascade", "sideways"}, "--cascade"},
		{[]string{"pod/a", "-A"}, "--all-namespaces"},
		{[]string{"pod/a", "--preview", "-o", "xml"}, "--output"},
		{[]string{"pod/a", "-o", "json"}, "--output json and yaml need --preview"},
		{[]string{"pod/a"}, "cannot ask for confirmation"},
	} {
		root := New("test")
		root.SetArgs(append([]string{"delete"}, tt.args...))
		root.SetIn(strings.NewReader("y\n"))
		root.SetErr(&bytes.Buffer{})
		_, err := root.ExecuteC()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v", tt.args, err)
		}
	}
}

func TestPlugin(t *testing.T) {
	for program, want := range map[string]string{"/usr/bin/kindred": "kindred", "/usr/bin/kubectl-kindred": "kubectl kindred"} {
		if got := NewFor(program, "test").CommandPath(); got != want {
			t.Errorf("%s: %q", program, got)
		}
	}
}
