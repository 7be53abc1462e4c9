// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// diesIn restarts the driver so that it gets SIGKILL in a call, carried out but not answered, and waits for that.
// cause requests the call, if it is not being retried already.
func (d *csiDriver) diesIn(call string, cause func()) {
	d.Helper()
	d.kill()
	d.start("--die-in", call)
	if cause != nil {
		cause()
	}
	select {
	case <-d.process.done:
	case <-time.After(2 * patience):
		d.Fatalf("%s was not called", call)
	}
}

// TestSidecarsOfDriverThatDies: a driver gets SIGKILL in each call of the life of a volume. Nothing is created or
// attached twice, and nothing is lost.
func TestSidecarsOfDriverThatDies(t *testing.T) {
	s, driver := withSidecars(t)
	driver.diesIn("CreateVolume", func() { s.apply(csiClaim("data", "1Mi", "") + csiPod("user", "data")) })
	driver.diesIn("ControllerPublishVolume", nil)
	driver.diesIn("NodeStageVolume", nil)
	driver.diesIn("NodePublishVolume", nil)
	driver.start()
	s.ready("user")
	if volumes := driver.volumes(); len(volumes) != 1 {
		t.Errorf("volumes %v", volumes)
	}
	s.has("true", "{.items[*].status.attached}", "volumeattachments")
	s.kubectl("exec", "user", "--", "sh", "-c", "echo kept > /data/file")
	file := filepath.Join(driver.data, s.handle("data"), "file")

	driver.diesIn("CreateSnapshot", func() { s.apply(csiSnapshot("before", "data")) })
	driver.start()
	s.has("true", "{.status.readyToUse}", "volumesnapshot", "before")
	if snapshots := driver.snapshots(); len(snapshots) != 1 {
		t.Errorf("snapshots %v", snapshots)
	}

	driver.diesIn("ControllerExpandVolume", func() {
		s.kubectl("patch", "pvc", "data", "-p", `{"spec": {"resources": {"requests": {"storage": "2Mi"}}}}`)
	})
	driver.diesIn("NodeExpandVolume", nil)
	driver.start()
	s.within(3*patience, "the claim grows", func() error { return s.equals("2Mi", "{.status.capacity.storage}", "pvc", "data") })
	expectContent(t, file, "kept\n")

	driver.diesIn("NodeUnpublishVolume", func() { s.kubectl("delete", "pod", "user", "--wait=false") })
	driver.diesIn("NodeUnstageVolume", nil)
	driver.diesIn("ControllerUnpublishVolume", nil)
	driver.start()
	s.gone("pod", "user")
	s.has("", "{.items[*].metadata.name}", "volumeattachments")
	expectContent(t, file, "kept\n")

	// The volume can be attached again.
	s.apply(csiPod("next", "data"))
	s.ready("next")
	s.prints("kept\n", "exec", "next", "--", "cat", "/data/file")
	s.kubectl("delete", "pod", "next")

	driver.diesIn("DeleteVolume", func() { s.kubectl("delete", "pvc", "data", "--wait=false") })
	driver.diesIn("DeleteSnapshot", func() { s.kubectl("delete", "volumesnapshot", "before", "--wait=false") })
	driver.start()
	s.has("", "{.items[*].metadata.name}", "pv")
	s.has("", "{.items[*].metadata.name}", "volumesnapshotcontents")
	if volumes, snapshots := driver.volumes(), driver.snapshots(); len(volumes)+len(snapshots) > 0 {
		t.Errorf("left: %v %v", volumes, snapshots)
	}
}

// TestSidecarsKindredDies: Kindred gets SIGKILL at several moments while the sidecars provision, attach,
// expand, snapshot, detach and delete volumes. Nothing is created or attached twice, and nothing is lost.
func TestSidecarsKindredDies(t *testing.T) {
	s, driver := withSidecars(t)
	moments := []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond}
	claims := make([]string, len(moments))
	for i := range moments {
		claims[i] = fmt.Sprint("data-", i)
	}
	// killed kills Kindred after it has begun with each claim.
	killed := func(begin func(claim string)) {
		t.Helper()
		for i, moment := range moments {
			begin(claims[i])
			time.Sleep(moment)
			s.cluster.kill(t)
			s.cluster.again(t)
		}
	}
	count := func(what string, names []string, want int) {
		t.Helper()
		if len(names) != want {
			t.Errorf("%d %s, want %d: %v", len(names), what, want, names)
		}
	}
	use := func(prefix, command, prints string) {
		t.Helper()
		for _, claim := range claims {
			s.ready(prefix + claim)
			s.prints(prints, "exec", prefix+claim, "--", "sh", "-c", "cd /"+claim+"; "+command)
		}
	}

	killed(func(claim string) { s.apply(csiClaim(claim, "1Mi", "") + csiPod("user-"+claim, claim)) })
	use("user-", "echo kept > file", "")
	count("volumes", driver.volumes(), len(claims))
	s.has("true true true true", "{.items[*].status.attached}", "volumeattachments")

	killed(func(claim string) {
		s.kubectl("patch", "pvc", claim, "-p", `{"spec": {"resources": {"requests": {"storage": "2Mi"}}}}`)
	})
	for _, claim := range claims {
		s.within(3*patience, "the claim grows", func() error { return s.equals("2Mi", "{.status.capacity.storage}", "pvc", claim) })
	}

	killed(func(claim string) { s.apply(csiSnapshot("of-"+claim, claim)) })
	for _, claim := range claims {
		s.has("true", "{.status.readyToUse}", "volumesnapshot", "of-"+claim)
	}
	count("snapshots", driver.snapshots(), len(claims))

	killed(func(claim string) { s.kubectl("delete", "pod", "user-"+claim, "--wait=false") })
	s.has("", "{.items[*].metadata.name}", "volumeattachments")
	killed(func(claim string) { s.apply(csiPod("next-"+claim, claim)) })
	use("next-", "cat file", "kept\n")

	killed(func(claim string) {
		s.kubectl("delete", "--wait=false", "pod/next-"+claim, "pvc/"+claim, "volumesnapshot/of-"+claim)
	})
	s.has("", "{.items[*].metadata.name}", "pv")
	s.has("", "{.items[*].metadata.name}", "volumeattachments")
	s.has("", "{.items[*].metadata.name}", "volumesnapshotcontents")
	count("volumes", driver.volumes(), 0)
	count("snapshots", driver.snapshots(), 0)
}

// TestSidecarsOfFullNode: a pod whose volume cannot be attached, because the node has as many as it can have,
// fails. The node then says how many that are, and the scheduler does not choose it for another pod.
func TestSidecarsOfFullNode(t *testing.T) {
	s, driver := withSidecars(t, "--slots", "1")
	s.apply(csiClaim("one", "1Mi", "") + csiPod("first", "one"))
	s.ready("first")
	s.has("", "{.spec.drivers[*].allocatable.count}", "csinode", driver.node)
	s.apply(csiClaim("two", "1Mi", "") + csiPod("second", "two"))
	s.hasEvent("second", "FailedAttachVolume", "no free slot")
	s.within(3*patience, "the pod fails", func() error {
		return s.equals("Failed VolumeAttachmentLimitExceeded", "{.status.phase} {.status.reason}", "pod", "second")
	})
	const message = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[two], " +
		"unattached volumes=[two], failed to process volumes=[]: context deadline exceeded"
	s.has("Pod was rejected: "+message, "{.status.message}", "pod", "second")
	s.hasEvent("second", "VolumeAttachmentLimitExceeded", message)
	s.has("1", "{.spec.drivers[*].allocatable.count}", "csinode", driver.node)
	s.apply(csiPod("third", "two"))
	s.hasEvent("third", "FailedScheduling", "node(s) exceed max volume count")

	// With the first pod goes its attachment, and the third one has its place.
	s.kubectl("delete", "pod", "first", "second")
	s.ready("third")
}
