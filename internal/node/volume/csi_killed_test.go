// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kindred-project/kindred/internal/mounts"
)

// TestKilledBetweenCalls kills the agent before or after each call to the driver, while two pods come and go.
// The next agent goes on from what is on disk: no pod ends up with two mounts, nothing is unstaged under a pod,
// and nothing is left.
func TestKilledBetweenCalls(t *testing.T) {
	const calls = 7 // stage, two publications, two unpublications, unstage; and none
	for kill := range calls {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, after it %t", kill, after), func(t *testing.T) {
				killedAtCall(t, kill, after)
			})
		}
	}
}

func killedAtCall(t *testing.T, kill int, after bool) {
	f := newCSIFixture(t)
	count, killed := 0, status.Error(codes.Unavailable, "the agent was killed")
	lose := func(string) error {
		count++
		if count == kill+1 {
			return killed
		}
		return nil
	}
	if after {
		f.driver.After = lose
	} else {
		f.driver.Before = lose
	}
	pod := podWith(claimVolume("v", false))
	other := second(pod)
	// again repeats a step with a new agent if the call was lost.
	again := func(step func() error) {
		t.Helper()
		if err := step(); err == nil {
			return
		}
		f.restart(t)
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	again(func() error { return f.Prepare(t.Context(), pod) })
	here := f.at(t, pod, "v")
	again(func() error { return f.Prepare(t.Context(), other) })
	there := f.at(t, other, "v")
	for _, p := range []string{here, there} {
		if points, err := mounts.At(p); err != nil || len(points) != 1 {
			t.Errorf("mounts %v, %v", points, err)
		}
	}
	writeFile(t, filepath.Join(here, "f"), "kept")
	again(func() error { return f.Teardown(t.Context(), pod.UID) })
	expectFile(t, filepath.Join(there, "f"), "kept")
	again(func() error { return f.Teardown(t.Context(), other.UID) })
	f.nothingLeft(t)
	expectFile(t, filepath.Join(f.driver.Data, "vol", "f"), "kept")
}

// TestCSIAfterRestartOfTheMachine: mounts are gone, and the records say that they were there.
func TestCSIAfterRestartOfTheMachine(t *testing.T) {
	f := newCSIFixture(t)
	pod := podWith(claimVolume("v", false))
	f.prepared(t, pod)
	f.driver.Took()
	if err := mounts.DetachAt(f.options.Layout.Root); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	f.prepared(t, pod)
	f.took(t, "Stage vol", "Publish vol")
	f.tornDown(t, pod.UID)
	f.nothingLeft(t)
}

// TestCSIOrphan: a pod that the API no longer has is torn down when its driver has registered.
func TestCSIOrphan(t *testing.T) {
	f := newCSIFixture(t)
	pod := podWith(claimVolume("v", false))
	f.prepared(t, pod)
	f.driver.Took()
	f.Manager = New(f.options)
	if err := f.RemoveOrphans(t.Context(), keepNone); err == nil {
		t.Error("a volume was torn down without its driver")
	}
	if _, err := os.Stat(f.options.Layout.PodDir(pod.UID)); err != nil {
		t.Errorf("the pod's directory is gone: %v", err)
	}
	if err := f.csi.Register(t.Context(), driverName, f.driver.Endpoint, []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	if err := f.RemoveOrphans(t.Context(), keepNone); err != nil {
		t.Fatal(err)
	}
	f.took(t, "Unpublish vol", "Unstage vol")
	f.nothingLeft(t)
	if _, err := os.Stat(f.options.Layout.PodDir(pod.UID)); !os.IsNotExist(err) {
		t.Errorf("the pod's directory still exists: %v", err)
	}
}
