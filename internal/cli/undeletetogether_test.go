// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestForeseen: objects that one dry run would restore count as restored in the dry runs after it.
func TestForeseen(t *testing.T) {
	f := foreseen{}
	for _, tt := range []struct {
		phase   ownership.UndeletionPhase
		results []ownership.UndeletionResult
		want    []string
	}{
		{ownership.UndeletionRefused, []ownership.UndeletionResult{became(ownership.UndeletionRestored, "ConfigMap", "shared", "")}, []string{"shared Restored"}},
		{ownership.UndeletionPlanned, []ownership.UndeletionResult{
			became(ownership.UndeletionRestored, "ConfigMap", "one", ""), became(ownership.UndeletionRestored, "ConfigMap", "shared", "a note", "one"),
			became(ownership.UndeletionLeft, "ConfigMap", "left", "a reason", "one"),
		}, []string{"one Restored", "shared Restored a note", "left Left a reason"}},
		{ownership.UndeletionPlanned, []ownership.UndeletionResult{
			became(ownership.UndeletionRestored, "ConfigMap", "two", ""), became(ownership.UndeletionRestored, "ConfigMap", "shared", "a note", "two"),
			became(ownership.UndeletionRestored, "Secret", "shared", "", "two"), became(ownership.UndeletionRestored, "ConfigMap", "left", "", "two"),
		}, []string{"two Restored", "shared Adopted", "shared Restored", "left Restored"}},
		{ownership.UndeletionPlanned, []ownership.UndeletionResult{became(ownership.UndeletionRestored, "ConfigMap", "shared", "")}, []string{"shared Unchanged it would be restored already"}},
	} {
		review := &ownership.Undeletion{Status: ownership.UndeletionStatus{Phase: tt.phase, Results: tt.results}}
		for _, result := range tt.results {
			if result.Outcome == ownership.UndeletionRestored {
				review.Status.Restored++
			}
		}
		f.follow(review)
		var got []string
		restored, adopted := int32(0), int32(0)
		for _, result := range review.Status.Results {
			line := fmt.Sprintf("%s %s", result.Object.Name, result.Outcome)
			if result.Reason != "" {
				line += " " + result.Reason
			}
			got = append(got, line)
			switch result.Outcome {
			case ownership.UndeletionRestored:
				restored++
			case ownership.UndeletionAdopted:
				adopted++
			}
		}
		if !slices.Equal(got, tt.want) || review.Status.Restored != restored || review.Status.Adopted != adopted {
			t.Errorf("%q, restored %d, adopted %d; want %q", got, review.Status.Restored, review.Status.Adopted, tt.want)
		}
	}
}
