// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// TestVerifiedPods: the Set shows the pods of the API, and not those that only the runtime has.
func TestVerifiedPods(t *testing.T) {
	f := newFixture(t, t.TempDir())
	f.see(asking("bound", "1", 1))
	f.see(asking("deleted", "1", 1))
	f.Deleted(asking("deleted", "1", 1))
	f.RemoveOrphan(&runtime.Pod{UID: "orphan", Name: "orphan"})
	if pods := f.VerifiedPods(); len(pods) != 1 || pods[0].UID != "bound" || pods[0].Status.Phase != "Pending" {
		t.Errorf("got %+v", pods)
	}
	for uid, want := range map[types.UID]bool{"bound": true, "deleted": false, "orphan": false, "none": false} {
		if p, found := f.VerifiedPod(uid); found != want || found && p.UID != uid {
			t.Errorf("%s: got %+v, %t", uid, p, found)
		}
	}
}
