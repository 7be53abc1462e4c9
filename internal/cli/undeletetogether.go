// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// foreseen has the objects that the dry runs so far would restore. The server handles each dry run
// as if it were the only one; a dependent that several targets of one command share is restored
// with the first of them and adopted by the others.
type foreseen map[ownership.ObjectReference]bool

// follow corrects a dry run by the earlier ones, and adds the objects that it would restore.
func (f foreseen) follow(review *ownership.Undeletion) {
	s := &review.Status
	if s.Phase != ownership.UndeletionPlanned {
		return
	}
	for i := range s.Results {
		result := &s.Results[i]
		if result.Outcome != ownership.UndeletionRestored {
			continue
		}
		object := result.Object
		object.UID = ""
		if !f[object] {
			f[object] = true
			continue
		}
		s.Restored--
		result.Reason = ""
		if isTarget := i == 0; isTarget { // Owners come first.
			result.Outcome, result.Reason = ownership.UndeletionUnchanged, "it would be restored already"
			continue
		}
		s.Adopted++
		result.Outcome = ownership.UndeletionAdopted
	}
}
