// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime returns a client of the runtime whose calls are counted.
func (m *Metrics) Runtime(service cri.RuntimeService) cri.RuntimeService {
	return countedRuntime{RuntimeService: service, metrics: m}
}

// Images returns a client of the image service whose calls are counted.
func (m *Metrics) Images(service cri.ImageManagerService) cri.ImageManagerService {
	return countedImages{ImageManagerService: service, metrics: m}
}

type countedRuntime struct {
	cri.RuntimeService
	metrics *Metrics
}

type countedImages struct {
	cri.ImageManagerService
	metrics *Metrics
}

// count makes a call and counts it.
func count[T any](m *Metrics, name string, call func() (T, error)) (T, error) {
	start := m.clock.Now()
	result, err := call()
	m.Operation(name, m.clock.Since(start), err)
	return result, err
}

// countErr is count for a call without a result.
func countErr(m *Metrics, name string, call func() error) error {
	_, err := count(m, name, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (c countedRuntime) Version(ctx context.Context, version string) (*runtimeapi.VersionResponse, error) {
	return count(c.metrics, "version", func() (*runtimeapi.VersionResponse, error) { return c.RuntimeService.Version(ctx, version) })
}

func (c countedRuntime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return count(c.metrics, "status", func() (*runtimeapi.StatusResponse, error) { return c.RuntimeService.Status(ctx, verbose) })
}

func (c countedRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	return count(c.metrics, "create_container", func() (string, error) {
		return c.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
	})
}

func (c countedRuntime) StartContainer(ctx context.Context, id string) error {
	return countErr(c.metrics, "start_container", func() error { return c.RuntimeService.StartContainer(ctx, id) })
}

func (c countedRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	return countErr(c.metrics, "stop_container", func() error { return c.RuntimeService.StopContainer(ctx, id, timeout) })
}

func (c countedRuntime) RemoveContainer(ctx context.Context, id string) error {
	return countErr(c.metrics, "remove_container", func() error { return c.RuntimeService.RemoveContainer(ctx, id) })
}

func (c countedRuntime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return count(c.metrics, "list_containers", func() ([]*runtimeapi.Container, error) { return c.RuntimeService.ListContainers(ctx, filter) })
}

func (c countedRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return count(c.metrics, "container_status", func() (*runtimeapi.ContainerStatusResponse, error) {
		return c.RuntimeService.ContainerStatus(ctx, id, verbose)
	})
}

func (c countedRuntime) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	return countErr(c.metrics, "update_container", func() error { return c.RuntimeService.UpdateContainerResources(ctx, id, resources) })
}

func (c countedRuntime) ReopenContainerLog(ctx context.Context, id string) error {
	return countErr(c.metrics, "reopen_container_log", func() error { return c.RuntimeService.ReopenContainerLog(ctx, id) })
}

func (c countedRuntime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, error) {
	start := c.metrics.clock.Now()
	stdout, stderr, err := c.RuntimeService.ExecSync(ctx, id, command, timeout)
	c.metrics.Operation("exec_sync", c.metrics.clock.Since(start), err)
	return stdout, stderr, err
}

func (c countedRuntime) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return count(c.metrics, "exec", func() (*runtimeapi.ExecResponse, error) { return c.RuntimeService.Exec(ctx, r) })
}

func (c countedRuntime) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return count(c.metrics, "attach", func() (*runtimeapi.AttachResponse, error) { return c.RuntimeService.Attach(ctx, r) })
}

func (c countedRuntime) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return count(c.metrics, "port_forward", func() (*runtimeapi.PortForwardResponse, error) { return c.RuntimeService.PortForward(ctx, r) })
}

func (c countedRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	start := c.metrics.clock.Now()
	id, err := c.RuntimeService.RunPodSandbox(ctx, config, handler)
	took := c.metrics.clock.Since(start)
	c.metrics.Operation("run_podsandbox", took, err)
	c.metrics.SandboxRun(handler, hasUserNamespace(config), took, err)
	return id, err
}

func hasUserNamespace(config *runtimeapi.PodSandboxConfig) bool {
	users := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	return users != nil && users.Mode == runtimeapi.NamespaceMode_POD
}

func (c countedRuntime) StopPodSandbox(ctx context.Context, id string) error {
	return countErr(c.metrics, "stop_podsandbox", func() error { return c.RuntimeService.StopPodSandbox(ctx, id) })
}

func (c countedRuntime) RemovePodSandbox(ctx context.Context, id string) error {
	return countErr(c.metrics, "remove_podsandbox", func() error { return c.RuntimeService.RemovePodSandbox(ctx, id) })
}

func (c countedRuntime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return count(c.metrics, "podsandbox_status", func() (*runtimeapi.PodSandboxStatusResponse, error) {
		return c.RuntimeService.PodSandboxStatus(ctx, id, verbose)
	})
}

func (c countedRuntime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return count(c.metrics, "list_podsandbox", func() ([]*runtimeapi.PodSandbox, error) { return c.RuntimeService.ListPodSandbox(ctx, filter) })
}

func (c countedRuntime) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return count(c.metrics, "update_podsandbox_resources", func() (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
		return c.RuntimeService.UpdatePodSandboxResources(ctx, r)
	})
}

func (c countedRuntime) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return count(c.metrics, "list_container_stats", func() ([]*runtimeapi.ContainerStats, error) {
		return c.RuntimeService.ListContainerStats(ctx, filter)
	})
}

func (c countedImages) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return count(c.metrics, "list_images", func() ([]*runtimeapi.Image, error) { return c.ImageManagerService.ListImages(ctx, filter) })
}

func (c countedImages) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return count(c.metrics, "image_status", func() (*runtimeapi.ImageStatusResponse, error) {
		return c.ImageManagerService.ImageStatus(ctx, image, verbose)
	})
}

func (c countedImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	return count(c.metrics, "pull_image", func() (string, error) { return c.ImageManagerService.PullImage(ctx, image, auth, sandbox) })
}

func (c countedImages) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	return countErr(c.metrics, "remove_image", func() error { return c.ImageManagerService.RemoveImage(ctx, image) })
}

func (c countedImages) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return count(c.metrics, "image_fs_info", func() (*runtimeapi.ImageFsInfoResponse, error) { return c.ImageManagerService.ImageFsInfo(ctx) })
}
