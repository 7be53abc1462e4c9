// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"net"
	"path/filepath"
	"testing"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestDeleteTask: a container with a task that CRI does not know, as an interrupted start leaves it, can be removed after its task was deleted,
// whether the task was only created, runs, or has ended.
func TestDeleteTask(t *testing.T) {
	o, r, conn := startWithBusybox(t)
	cri, tasks := runtimeapi.NewRuntimeServiceClient(conn), tasksapi.NewTasksClient(conn)
	for _, name := range []string{"created", "runs", "ended"} {
		t.Run(name, func(t *testing.T) {
			command := []string{"sleep", "1000"}
			if name == "ended" {
				command = []string{"true"}
			}
			ctx := inNamespace(t.Context())
			_, container := createPod(t, o, conn, name, command...)
			createTask(t, conn, container)
			if name != "created" {
				if _, err := tasks.Start(ctx, &tasksapi.StartRequest{ContainerID: container}); err != nil {
					t.Fatal(err)
				}
			}
			if name == "ended" {
				if _, err := tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: container}); err != nil {
					t.Fatal(err)
				}
			}
			remove := &runtimeapi.RemoveContainerRequest{ContainerId: container}
			if _, err := cri.RemoveContainer(ctx, remove); status.Code(err) != codes.FailedPrecondition {
				t.Fatalf("CRI removes a container with a task: %v", err)
			}
			for range 2 { // the second time there is none
				if err := DeleteTask(ctx, r.Endpoint, container); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := cri.RemoveContainer(ctx, remove); err != nil {
				t.Error(err)
			}
		})
	}
}

// createTask creates a task for a container as CRI does when it starts one, but CRI does not learn of it.
func createTask(t *testing.T, conn grpc.ClientConnInterface, container string) {
	t.Helper()
	ctx := inNamespace(t.Context())
	found, err := containersapi.NewContainersClient(conn).Get(ctx, &containersapi.GetContainerRequest{ID: container})
	if err != nil {
		t.Fatal(err)
	}
	c := found.Container
	root, err := snapshotsapi.NewSnapshotsClient(conn).Mounts(ctx, &snapshotsapi.MountsRequest{Snapshotter: c.Snapshotter, Key: c.SnapshotKey})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tasksapi.NewTasksClient(conn).Create(ctx, &tasksapi.CreateTaskRequest{ContainerID: container, Rootfs: root.Mounts}); err != nil {
		t.Fatal(err)
	}
}

// TestDeleteTaskOfAnotherRuntime: a runtime without containerd's API has no tasks.
func TestDeleteTaskOfAnotherRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	if err := DeleteTask(t.Context(), "unix://"+socket, "c"); err != nil {
		t.Error(err)
	}
}
