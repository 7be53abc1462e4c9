// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mortal is a runtime whose calls fail after a number of them, as if the agent had been killed.
type mortal struct {
	*fakeRuntime
	left int
}

func (m *mortal) call() error {
	if m.left == 0 {
		return errKilled
	}
	m.left--
	return nil
}

func (m *mortal) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.fakeRuntime.ListImages(ctx, filter)
}

func (m *mortal) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	if err := m.call(); err != nil {
		return err
	}
	return m.fakeRuntime.RemoveImage(ctx, image)
}

func (m *mortal) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.fakeRuntime.ImageFsInfo(ctx)
}

func (m *mortal) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.fakeRuntime.ListContainers(ctx, filter)
}

func (m *mortal) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.fakeRuntime.Status(ctx, verbose)
}

// TestCollectKilled: an agent that is killed after any call to the runtime, and the next one, remove together what one
// agent removes: the least recently used images, and no more than needed.
func TestCollectKilled(t *testing.T) {
	for dies := 0; ; dies++ {
		// The disk is above the upper threshold until the last image that has to go is gone.
		s := newSet(t, Policy{High: 81, Low: 80, MinAge: time.Minute})
		s.others = 750
		for i := range 4 {
			s.add(fmt.Sprint(i), 30)
			s.Used(fmt.Sprint(3 - i))
			s.clock.Step(2 * time.Minute)
		}
		s.add("used", 0)
		s.containers = []*runtimeapi.Container{{Id: "1", ImageId: "used"}}
		if err := s.usage.save(); err != nil {
			t.Fatal(err)
		}
		dying := &mortal{s.fakeRuntime, dies}
		s.options.Images, s.options.Runtime = dying, dying
		killed := s.Collect(quiet(t))
		s.open(s.usage.file, s.options.Policy)
		if err := s.Collect(quiet(t)); err != nil {
			t.Errorf("killed after %d calls: %v", dies, err)
		}
		if diff := cmp.Diff([]string{"0", "used"}, slices.Sorted(maps.Keys(s.images))); diff != "" {
			t.Errorf("killed after %d calls: left (-want +got):\n%s", dies, diff)
		}
		if killed == nil {
			if dies < 5 {
				t.Errorf("not killed after %d calls", dies)
			}
			return
		}
	}
}
