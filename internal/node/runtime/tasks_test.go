// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis"
)

// busyRuntime refuses to remove a container while it has a task.
type busyRuntime struct {
	cri.RuntimeService
	err   error
	calls int
}

func (b *busyRuntime) RemoveContainer(context.Context, string) error {
	b.calls++
	return b.err
}

func TestWithoutTasks(t *testing.T) {
	busy, broken := status.Error(codes.FailedPrecondition, "cannot delete running task"), errors.New("broken")
	for _, test := range []struct {
		name        string
		err, failed error
		deleted     bool
		calls       int
		want        error
	}{
		{name: "removed", calls: 1},
		{name: "another error", err: broken, calls: 1, want: broken},
		{name: "a task", err: busy, deleted: true, calls: 2},
		{name: "a task that stays", err: busy, failed: broken, deleted: true, calls: 1, want: broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &busyRuntime{err: test.err}
			deleted := ""
			service := WithoutTasks(r, func(_ context.Context, container string) error {
				deleted = container
				if test.failed == nil {
					r.err = nil
				}
				return test.failed
			})
			err := service.RemoveContainer(t.Context(), "c")
			if !errors.Is(err, test.want) || (err != nil) != (test.want != nil) || r.calls != test.calls || (deleted == "c") != test.deleted {
				t.Errorf("%v after %d calls, deleted %q", err, r.calls, deleted)
			}
			if test.failed != nil && status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%v has the code %v, want that of the runtime", err, status.Code(err))
			}
		})
	}
	if r := (&busyRuntime{}); WithoutTasks(r, nil) != cri.RuntimeService(r) {
		t.Error("a runtime without tasks is wrapped")
	}
}
