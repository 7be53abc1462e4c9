// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/test/images"
)

// memoryRuntime is a container runtime in memory. Containers run until they are stopped.
type memoryRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	mu         sync.Mutex
	serial     int64 // of IDs and times
	sandboxes  map[string]*memorySandbox
	containers map[string]*memoryContainer
	images     map[string]bool
	problems   []string // what no agent may do
}

type memorySandbox struct {
	*runtimeapi.PodSandboxStatus
	users []*runtimeapi.IDMapping
}

type memoryContainer struct {
	*runtimeapi.ContainerStatus
	sandbox   string
	resources *runtimeapi.LinuxContainerResources
}

func newMemoryRuntime() *memoryRuntime {
	return &memoryRuntime{
		sandboxes: map[string]*memorySandbox{}, containers: map[string]*memoryContainer{}, images: map[string]bool{images.BusyboxName: true},
	}
}

// next returns a time later than all before, and an ID.
func (r *memoryRuntime) next(prefix string) (now int64, id string) {
	r.serial++
	return time.Now().UnixNano(), fmt.Sprintf("%s%d", prefix, r.serial)
}

func (r *memoryRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "memory", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (r *memoryRuntime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}},
	}, nil
}

func (r *memoryRuntime) RunPodSandbox(_ context.Context, request *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, id := r.next("sandbox")
	c := request.Config
	users := c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions().GetUids()
	for _, other := range r.sandboxes {
		if other.State != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		if other.Metadata.Name == c.Metadata.Name {
			r.problems = append(r.problems, "a second sandbox for "+c.Metadata.Name)
		} else if len(users) > 0 && len(other.users) > 0 && users[0].HostId == other.users[0].HostId {
			r.problems = append(r.problems, fmt.Sprintf("%s and %s have the same users", c.Metadata.Name, other.Metadata.Name))
		}
	}
	r.sandboxes[id] = &memorySandbox{
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: id, Metadata: c.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: now,
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "192.0.2.1"}, Labels: c.Labels, Annotations: c.Annotations,
			Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: c.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		},
		users: users,
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (r *memoryRuntime) StopPodSandbox(_ context.Context, request *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[request.PodSandboxId]; s != nil {
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *memoryRuntime) RemovePodSandbox(_ context.Context, request *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, request.PodSandboxId)
	maps.DeleteFunc(r.containers, func(_ string, c *memoryContainer) bool { return c.sandbox == request.PodSandboxId })
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (r *memoryRuntime) PodSandboxStatus(_ context.Context, request *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[request.PodSandboxId]
	if s == nil {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	shown := &runtimeapi.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Network: s.Network, Linux: s.Linux,
		Labels: s.Labels, Annotations: s.Annotations,
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: shown}, nil
}

func (r *memoryRuntime) ListPodSandbox(_ context.Context, request *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	response := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if f := request.GetFilter(); matches(f.GetLabelSelector(), s.Labels) && (f.GetId() == "" || f.GetId() == s.Id) {
			response.Items = append(response.Items, &runtimeapi.PodSandbox{
				Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
			})
		}
	}
	return response, nil
}

// matches reports whether labels are as the selector of a filter requires.
func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (r *memoryRuntime) CreateContainer(_ context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := request.Config
	for _, other := range r.containers {
		if other.sandbox == request.PodSandboxId && other.Metadata.Name == c.Metadata.Name && other.Metadata.Attempt == c.Metadata.Attempt {
			return nil, status.Error(codes.AlreadyExists, "the name is reserved")
		}
		if other.Metadata.Name == c.Metadata.Name && r.sandboxes[other.sandbox].Metadata.Name == request.SandboxConfig.Metadata.Name &&
			other.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			r.problems = append(r.problems, "a second run of "+c.Metadata.Name)
		}
	}
	now, id := r.next(c.Metadata.Name)
	r.containers[id] = &memoryContainer{
		ContainerStatus: &runtimeapi.ContainerStatus{
			Id: id, Metadata: c.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: now,
			Image: c.Image, ImageRef: c.Image.Image, Labels: c.Labels, Annotations: c.Annotations,
		},
		sandbox: request.PodSandboxId, resources: c.GetLinux().GetResources(),
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (r *memoryRuntime) StartContainer(_ context.Context, request *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, r.change(request.ContainerId, func(c *memoryContainer) {
		c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	})
}

func (r *memoryRuntime) StopContainer(_ context.Context, request *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, r.change(request.ContainerId, func(c *memoryContainer) {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			c.State, c.FinishedAt, c.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), "Completed"
		}
	})
}

func (r *memoryRuntime) UpdateContainerResources(_ context.Context, request *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, r.change(request.ContainerId, func(c *memoryContainer) { c.resources = request.Linux })
}

func (r *memoryRuntime) change(id string, change func(*memoryContainer)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.containers[id] == nil {
		return status.Error(codes.NotFound, "no such container")
	}
	change(r.containers[id])
	return nil
}

func (r *memoryRuntime) RemoveContainer(_ context.Context, request *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, request.ContainerId)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *memoryRuntime) ContainerStatus(_ context.Context, request *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[request.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	shown := &runtimeapi.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.StartedAt, FinishedAt: c.FinishedAt,
		Reason: c.Reason, Image: c.Image, ImageRef: c.ImageRef, Labels: c.Labels, Annotations: c.Annotations,
	}
	return &runtimeapi.ContainerStatusResponse{Status: shown}, nil
}

func (r *memoryRuntime) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	response := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containers {
		if f := request.GetFilter(); matches(f.GetLabelSelector(), c.Labels) && (f.GetId() == "" || f.GetId() == c.Id) {
			response.Containers = append(response.Containers, &runtimeapi.Container{
				Id: c.Id, PodSandboxId: c.sandbox, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt,
				Image: c.Image, ImageRef: c.ImageRef, Labels: c.Labels, Annotations: c.Annotations,
			})
		}
	}
	return response, nil
}

// ContainerStats implements runtimeapi.RuntimeServiceServer: each container uses a byte.
func (r *memoryRuntime) ContainerStats(_ context.Context, request *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	return &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: request.ContainerId},
		Memory:     &runtimeapi.MemoryUsage{UsageBytes: &runtimeapi.UInt64Value{Value: 1}},
	}}, nil
}

func (r *memoryRuntime) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.images[request.Image.Image] {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: imageOf(request.Image.Image)}, nil
}

func (r *memoryRuntime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"}}}}, nil
}

func (r *memoryRuntime) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images[request.Image.Image] = true
	return &runtimeapi.PullImageResponse{ImageRef: request.Image.Image}, nil
}

func (r *memoryRuntime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	response := &runtimeapi.ListImagesResponse{}
	for name := range r.images {
		response.Images = append(response.Images, imageOf(name))
	}
	return response, nil
}

func imageOf(name string) *runtimeapi.Image {
	return &runtimeapi.Image{Id: name, RepoTags: []string{name}, Spec: &runtimeapi.ImageSpec{Image: name}, Size: 1}
}

// found returns what agents have done that none may do.
func (r *memoryRuntime) found() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problems
}

// has lists the sandboxes and containers, in the order of their names and attempts.
func (r *memoryRuntime) has() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, c := range r.containers {
		lines = append(lines, fmt.Sprintf("%s/%s %d: %s cpu %d/%d memory %dMi", r.sandboxes[c.sandbox].Metadata.Name, c.Metadata.Name, c.Metadata.Attempt,
			c.State, c.resources.GetCpuShares(), c.resources.GetCpuQuota(), c.resources.GetMemoryLimitInBytes()>>20))
	}
	for _, s := range r.sandboxes {
		lines = append(lines, fmt.Sprintf("%s: %s", s.Metadata.Name, s.State))
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}
