// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/containerd"
	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// TestGarbage collects garbage on a real runtime.
func TestGarbage(t *testing.T) {
	b := newBed(t)
	endpoint := b.options.Endpoint
	var unpinned atomic.Bool
	b.options.PinnedImages = func(ctx context.Context) ([]string, error) {
		if unpinned.Load() {
			return nil, nil
		}
		return containerd.PinnedImages(ctx, endpoint)
	}
	b.options.Config.ImageGCHighThresholdPercent, b.options.Config.ImageGCLowThresholdPercent = new(int32(1)), new(int32(0))
	b.options.Config.ImageMinimumGCAge = metav1.Duration{Duration: time.Millisecond}
	layout := b.options.layout()

	// A killed agent left the logs, the files and the cgroup of a pod that the API and the runtime no longer have.
	orphan := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", UID: "orphan"}}
	left := []string{filepath.Join(layout.PodLogsDir("default", "orphan", "orphan"), "c"), filepath.Join(layout.TerminationLogsDir("orphan"), "c")}
	for _, dir := range left {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cgroups, err := cgroup.New(b.options.CgroupParent, cgroup.Cgroupfs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cgroups.Ensure(orphan); err != nil {
		t.Fatal(err)
	}
	b.start()
	defer func() { b.stop() }()
	if err := b.agent.leftPods.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft(orphan)

	// The images of the runtime are those of sandboxes and of a user: pinned, whatever the disk's usage.
	before := b.imageIDs()
	time.Sleep(10 * time.Millisecond) // the minimum age
	if err := b.agent.reclaimImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := b.imageIDs(); len(before) < 2 || len(after) != len(before) {
		t.Errorf("images %v, and %v after a collection", before, after)
	}

	// An image that is not pinned stays while a pod needs it, and goes after that.
	unpinned.Store(true)
	b.create(podOf("user", busybox("c", "exit 0")))
	b.until("user", "restarted", func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	b.collectImages()
	if after := b.imageIDs(); len(after) != len(before) {
		t.Errorf("images %v, and %v after a collection, with a pod", before, after)
	}
	user, err := b.client.CoreV1().Pods("default").Get(t.Context(), "user", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.delete("user")
	b.nothingLeft(user)
	b.collectImages()
	if after := b.imageIDs(); len(after) != len(before)-1 && !b.reportsPins() {
		t.Errorf("images %v, and %v after a collection, without the pod", before, after)
	}
}

// imageIDs returns the IDs of the runtime's images.
func (b *bed) imageIDs() []string {
	b.Helper()
	images, err := b.agent.images.ListImages(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	var ids []string
	for _, image := range images {
		ids = append(ids, image.Id)
	}
	return ids
}

// reportsPins reports whether the runtime itself pins the image of the tests: containerd 1.6 does not.
func (b *bed) reportsPins() bool {
	b.Helper()
	images, err := b.agent.images.ListImages(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return slices.ContainsFunc(images, func(i *runtimeapi.Image) bool {
		return i.Pinned && slices.ContainsFunc(i.RepoTags, func(tag string) bool { return strings.Contains(tag, "busybox") })
	})
}

// collectImages collects images. The machine's disk stays fuller than the threshold.
func (b *bed) collectImages() {
	b.Helper()
	time.Sleep(10 * time.Millisecond) // the minimum age
	if err := b.agent.unusedImages.Collect(b.Context()); err != nil && !strings.HasPrefix(err.Error(), "Insufficient") {
		b.Error(err)
	}
}
