// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/source"
)

// TestRefresh: after each call, what Refresh returns is what a reading of the whole pod returns, without a list.
func TestRefresh(t *testing.T) {
	fake := newFakeCRI()
	r := New(fake, "me", clock.RealClock{})
	ctx := t.Context()
	if _, err := r.Get(ctx, "u"); err != nil {
		t.Fatal(err)
	}
	labels := podLabels("me", "u", "c")
	steps := []struct {
		name  string
		do    func() error
		lists int
	}{
		{"nothing", func() error { return nil }, 0},
		{"run the sandbox", func() error {
			_, err := r.RunPodSandbox(ctx, "u", &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Attempt: 2}, Labels: podLabels("me", "u", ""),
				Annotations: map[string]string{source.Annotation: "file"},
			}, "")
			return err
		}, 0},
		{"create a container", func() error {
			_, err := r.CreateContainer(ctx, "u", "new-s", &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{}, Labels: labels,
				Annotations: map[string]string{AnnotationRestartCount: "3", AnnotationHash: "h"},
			}, nil)
			return err
		}, 0},
		{"start it", func() error { return r.StartContainer(ctx, "u", "new-s", "new-c") }, 0},
		{"stop it", func() error { return r.StopContainer(ctx, "u", "new-c", time.Second) }, 0},
		{"stop the sandbox", func() error { return r.StopPodSandbox(ctx, "u", "new-s") }, 0},
		{"remove the container", func() error { return r.RemoveContainer(ctx, "u", "new-c") }, 0},
		{"remove the sandbox", func() error { return r.RemovePodSandbox(ctx, "u", "new-s") }, 1},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		fake.lists, fake.requested = 0, nil
		got, err := r.Refresh(ctx, "u")
		if err != nil {
			t.Fatal(step.name, err)
		}
		if fake.lists != step.lists {
			t.Errorf("%s: %d lists, want %d", step.name, fake.lists, step.lists)
		}
		if requested := fake.takeRequests(); len(requested) > 1 || step.name == "remove the container" && len(requested) > 0 {
			t.Errorf("%s: requested %v", step.name, requested)
		}
		if r.Last("u") != got {
			t.Errorf("%s: Last is another pod", step.name)
		}
		want, err := New(fake, "me", clock.RealClock{}).Get(ctx, "u")
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Sandboxes)+len(want.Containers) == 0 {
			want.Namespace, want.Name, want.Source = got.Namespace, got.Name, got.Source // only a sandbox or container tells
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-whole reading +refresh):\n%s", step.name, diff)
		}
	}
}

// TestRefreshAfterAFailure: a call that fails may have changed anything of the pod.
func TestRefreshAfterAFailure(t *testing.T) {
	fake := newFakeCRI()
	fake.fill("me", "u")
	fake.startErr = errors.New("no")
	r := New(fake, "me", clock.RealClock{})
	if _, err := r.Get(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	fake.change(func() { delete(fake.containers, "u-c0") })
	if err := r.StartContainer(t.Context(), "u", "u-s", "u-c1"); err == nil {
		t.Fatal("no error")
	}
	got, err := r.Refresh(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Containers) != 1 {
		t.Errorf("%d containers, want that the pod was read again", len(got.Containers))
	}
}
