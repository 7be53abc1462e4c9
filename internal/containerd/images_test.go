// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/test/images"
)

// TestPinAndRemove: an imported image is pinned, and is removed with all its names once no container uses it.
func TestPinAndRemove(t *testing.T) {
	o, r, conn := startWithBusybox(t)
	pinned := func() []string {
		t.Helper()
		names, err := PinnedImages(t.Context(), r.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	isBusybox := func(name string) bool { return strings.Contains(name, "busybox") }
	if names := pinned(); !slices.Contains(names, PauseImage) || !slices.ContainsFunc(names, isBusybox) {
		t.Errorf("pinned are %v", names)
	}
	_, container, _ := runPod(t, o, conn, "user", "sleep", "1000")
	if err := RemoveImage(t.Context(), r.Endpoint, images.BusyboxName); err == nil || !strings.Contains(err.Error(), "is in use by pod") {
		t.Errorf("removal of an image in use: %v", err)
	}
	request := &runtimeapi.RemoveContainerRequest{ContainerId: container}
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).RemoveContainer(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if err := RemoveImage(t.Context(), r.Endpoint, images.BusyboxName); err != nil {
		t.Error(err)
	}
	if present, err := hasImage(t.Context(), conn, images.BusyboxName); err != nil || present {
		t.Errorf("the image is present: %t, %v", present, err)
	}
	if names := pinned(); slices.ContainsFunc(names, isBusybox) {
		t.Errorf("still pinned: %v", names)
	}
	if err := RemoveImage(t.Context(), r.Endpoint, images.BusyboxName); err == nil || !strings.Contains(err.Error(), "has no image") {
		t.Errorf("removal of a missing image: %v", err)
	}
}
