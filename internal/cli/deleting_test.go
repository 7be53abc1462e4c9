// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// shownAs returns a preview with lines "name Outcome"; a star marks a target.
func shownAs(hidden int32, lines ...string) ownership.DeletionPreviewStatus {
	s := ownership.DeletionPreviewStatus{Hidden: hidden}
	for _, line := range lines {
		name, outcome, _ := strings.Cut(line, " ")
		name, target := strings.CutPrefix(name, "*")
		s.Objects = append(s.Objects, ownership.PreviewedObject{
			ObjectReference: treeOf("Set", name).ObjectReference, Outcome: ownership.DeletionOutcome(outcome), Target: target,
		})
	}
	return s
}

func TestPreviewChanges(t *testing.T) {
	shown := shownAs(1, "*one Deleted", "*two Blocked", "child Deleted", "shared Kept", "loose Orphaned")
	for _, tt := range []struct {
		name                string
		now                 ownership.DeletionPreviewStatus
		before, whileAtWork []string
	}{
		{"no change", shown, nil, nil},
		{"some objects are already deleted", shownAs(0, "*two Blocked"), nil, nil},
		{"one more object is kept", shownAs(1, "new Kept"), nil, nil},
		{"one more object is deleted", shownAs(1, "new Deleted"), []string{"new - deleted"}, []string{"new - deleted"}},
		{"one more object is orphaned", shownAs(1, "new Orphaned"), []string{"new - orphaned"}, []string{"new - orphaned"}},
		{"a kept object is deleted", shownAs(1, "shared Deleted"), []string{"shared kept deleted"}, []string{"shared kept deleted"}},
		{"an orphaned object is deleted", shownAs(1, "loose Deleted"), []string{"loose orphaned deleted"}, []string{"loose orphaned deleted"}},
		{"a deleted object is kept", shownAs(1, "child Kept"), []string{"child deleted kept"}, nil},
		{"a blocked object is deleted", shownAs(1, "*two Deleted"), []string{"two blocked deleted"}, nil},
		{"more objects are hidden", shownAs(3), []string{"2 hidden"}, []string{"2 hidden"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for begun, want := range map[bool][]string{false: tt.before, true: tt.whileAtWork} {
				var got []string
				for _, c := range previewChanges(shown, tt.now, begun) {
					if c.object == nil {
						got = append(got, fmt.Sprintf("%d hidden", c.hidden))
						continue
					}
					was := c.shown
					if was == "" {
						was = "-"
					}
					got = append(got, c.object.Name+" "+was+" "+c.now)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("started: %v: %s", begun, diff)
				}
			}
		})
	}
}

// fakeDeletion performs a deletion. Each preview and each deletion takes some time.
type fakeDeletion struct {
	deleting
	clock           *clocktesting.FakePassiveClock
	preview, remove time.Duration
	done            []string
	// change is the preview after the given number of targets were deleted.
	change map[int]ownership.DeletionPreviewStatus
	fail   string
}

func (f *fakeDeletion) start(shown ownership.DeletionPreviewStatus) error {
	f.clock = clocktesting.NewFakePassiveClock(noon)
	deleted := 0
	now := shown
	pass := func(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }
	f.deleting = deleting{
		shown: shown, policy: metav1.DeletePropagationForeground, clock: f.clock,
		progress: func(ownership.ObjectReference, int, int) {},
		preview: func(_ context.Context, spec ownership.DeletionPreviewSpec) (ownership.DeletionPreviewStatus, error) {
			pass(f.preview)
			var asked []string
			for _, target := range spec.Targets {
				asked = append(asked, target.Name+"/"+string(target.UID))
			}
			if want := len(targetsOf(shown)); len(asked) != want || *spec.PropagationPolicy != metav1.DeletePropagationForeground {
				return now, fmt.Errorf("asked about %v with policy %s", asked, *spec.PropagationPolicy)
			}
			f.done = append(f.done, "check")
			return now, nil
		},
		remove: func(_ context.Context, ref ownership.ObjectReference, options metav1.DeleteOptions) error {
			pass(f.remove)
			if ref.Name == f.fail {
				return errors.New("refused")
			}
			if *options.Preconditions.UID != ref.UID || options.Preconditions.ResourceVersion != nil || *options.PropagationPolicy != metav1.DeletePropagationForeground {
				return fmt.Errorf("options %+v", options)
			}
			f.done = append(f.done, ref.Name)
			deleted++
			if next, changes := f.change[deleted]; changes {
				now = next
			}
			return nil
		},
	}
	if next, changes := f.change[0]; changes {
		now = next
	}
	return f.run(context.Background())
}

// TestDeletingAsShown: targets are deleted in the order shown, as long as no other object would be
// deleted too, and checks take at most as long as deletions.
func TestDeletingAsShown(t *testing.T) {
	shown := shownAs(0, "*one Deleted", "*two Deleted", "*three Deleted", "child Deleted")
	more := shownAs(0, "*one Deleted", "new Deleted")
	for _, tt := range []struct {
		name            string
		preview, remove time.Duration
		change          map[int]ownership.DeletionPreviewStatus
		fail            string
		want            []string
		err             string
	}{
		{"quick checks", 1, 5, nil, "", []string{"check", "one", "check", "two", "check", "three"}, ""},
		{"slow checks", 10, 6, nil, "", []string{"check", "one", "two", "check", "three"}, ""},
		{"changed before the first deletion", 1, 1, map[int]ownership.DeletionPreviewStatus{0: more}, "", []string{"check"}, "nothing was deleted: the preview has changed"},
		{"changed meanwhile", 1, 1, map[int]ownership.DeletionPreviewStatus{2: more}, "", []string{"check", "one", "check", "two", "check"}, "only 2 of 3 objects were deleted: the preview"},
		{"refused", 1, 1, nil, "two", []string{"check", "one", "check"}, "1 of 3 objects were deleted, then: refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := fakeDeletion{preview: tt.preview, remove: tt.remove, change: tt.change, fail: tt.fail}
			err := f.start(shown)
			if diff := cmp.Diff(tt.want, f.done); diff != "" {
				t.Error(diff)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestDeletingMany: for any number of targets, checks take at most as long as deletions.
func TestDeletingMany(t *testing.T) {
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("*o-%d Deleted", i))
	}
	f := fakeDeletion{preview: 50 * time.Millisecond, remove: time.Millisecond}
	if err := f.start(shownAs(0, lines...)); err != nil {
		t.Fatal(err)
	}
	checks := len(slices.DeleteFunc(f.done, func(s string) bool { return s != "check" }))
	if checks != 20 {
		t.Errorf("%d checks", checks)
	}
}

func TestPrintChanges(t *testing.T) {
	shown := shownAs(0, "*one Deleted", "shared Kept")
	now := shownAs(2, "*one Deleted", "shared Deleted", "new Deleted")
	now.Objects[2].Namespace = "other"
	got := printed(func(cmd *cobra.Command) { printChanges(cmd, shown, previewChanges(shown, now, false)) })
	want := `
CHANGED           SHOWN  NOW
Set/shared        kept   deleted
Set/new in other  -      deleted
2 more objects that you may not read
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPrintPreviewOfSeveral: the output is one table, with a star at each target, and one summary.
func TestPrintPreviewOfSeveral(t *testing.T) {
	preview := &ownership.DeletionPreview{Status: shownAs(0, "*one Deleted", "*two Deleted", "shared Deleted")}
	preview.Status.Objects[1].Deleting = true
	preview.Status.Objects[2].Owners = treeOf("Set", "shared", "one", "two").Owners
	preview.Status.Deleted = 3
	got := printed(func(cmd *cobra.Command) { printPreview(cmd, preview, false) })
	want := `OBJECT         OUTCOME  NOTES
Set/one *      deleted
└─ Set/shared  deleted
Set/two *      deleted  already being deleted

would be deleted: 3
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
