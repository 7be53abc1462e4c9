// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"fmt"
	"syscall"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// taskLimit limits the calls of DeleteTask, which wait for the killed processes to exit.
const taskLimit = 5 * time.Second

// DeleteTask kills and deletes the task of a container: the processes that containerd has for it, below CRI. A missing task is not an
// error, and neither is a runtime that is not containerd.
//
// If a client's connection ends while a container starts, as when the client is killed, the task may stay although CRI considers the
// container not started or ended. CRI then neither stops nor removes the container: "cannot delete running task".
func DeleteTask(ctx context.Context, endpoint, container string) error {
	conn, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(inNamespace(ctx), taskLimit)
	defer cancel()
	tasks := tasksapi.NewTasksClient(conn)
	// Kill also fails if the processes have exited already. If they still run, Wait reaches its deadline.
	_, err = tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: container, Signal: uint32(syscall.SIGKILL), All: true})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	if _, err := tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: container}); err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("await the end of container %s: %w", container, plain(err))
	}
	if _, err := tasks.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: container}); err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("delete the task of container %s: %w", container, plain(err))
	}
	return nil
}
