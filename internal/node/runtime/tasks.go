// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis"
)

// WithoutTasks returns a client that also removes containers with a task that CRI does not know about. An agent that is killed while a
// container starts can leave one. deleteTask deletes the task of a container, with its processes; if it is nil, the runtime has no tasks.
func WithoutTasks(service cri.RuntimeService, deleteTask func(ctx context.Context, container string) error) cri.RuntimeService {
	if deleteTask == nil {
		return service
	}
	return withoutTasks{service, deleteTask}
}

type withoutTasks struct {
	cri.RuntimeService
	deleteTask func(ctx context.Context, container string) error
}

func (w withoutTasks) RemoveContainer(ctx context.Context, id string) error {
	err := w.RuntimeService.RemoveContainer(ctx, id)
	if status.Code(err) != codes.FailedPrecondition { // containerd: "cannot delete running task"
		return err
	}
	if failed := w.deleteTask(ctx, id); failed != nil {
		return errors.Join(err, failed)
	}
	return w.RuntimeService.RemoveContainer(ctx, id)
}
