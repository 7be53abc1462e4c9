// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// startError is a failed start: the reason of the waiting state it leads to, and the
// error's text as its message.
type startError struct {
	reason string
	err    error
	run    string // the ID of the container that could not be started
}

func (e *startError) Error() string { return runtime.Message(e.err) }

// startContainer is the containers stage, for init, app and ephemeral containers
// alike: image, configuration, create, start.
func (w *Worker) startContainer(ctx context.Context, pod *v1.Pod, a Action) func(*Memory) {
	err := w.bringUp(ctx, pod, a)
	if err == nil {
		return func(m *Memory) { delete(m.Failures, a.Container) }
	}
	if ctx.Err() != nil {
		return nil // the pod is over, nobody waits for this container
	}
	var image *ImageError
	if errors.As(err, &image) {
		return w.failedImage(a.Container, image) // Images has told
	}
	var start *startError
	if !errors.As(err, &start) {
		start = &startError{reason: reasonCreateConfig, err: err}
	}
	w.event(pod, a.Container, v1.EventTypeWarning, "Failed", "Error: "+start.Error())
	failed := w.failed(a.Container, start.reason, start.Error())
	return func(m *Memory) {
		failed(m)
		if start.run != "" {
			m.Runs[start.run] = RunMemory{StartFailed: true}
		}
	}
}

// failedImage remembers a missing image. Images keeps the pull's own back-off; it is
// only asked again now and then.
func (w *Worker) failedImage(container string, image *ImageError) func(*Memory) {
	at := w.parts.Clock.Now().Add(retryMax)
	return func(m *Memory) {
		m.Failures[container] = Failure{Reason: image.Reason, Message: image.Message, RetryAt: at}
	}
}

func (w *Worker) bringUp(ctx context.Context, pod *v1.Pod, a Action) error {
	sandbox, sandboxConfig, err := w.currentSandbox(pod)
	if err != nil {
		return err
	}
	c := containerOf(pod, a.Container)
	image, err := w.parts.Images.EnsurePresent(ctx, pod, c, sandboxConfig)
	if err != nil {
		return err
	}
	volumeImages, err := w.volumeImages(ctx, pod, c, sandboxConfig)
	if err != nil {
		return err
	}
	config, err := w.configure(ctx, newRun{pod: w.Pod(), container: c, action: a, image: image, volumeImages: volumeImages})
	if err != nil {
		return &startError{reason: reasonCreateConfig, err: err}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// From here on, what was begun is brought to its end.
	ctx = context.WithoutCancel(ctx)
	service := w.parts.Runtime.Service()
	id, err := service.CreateContainer(ctx, sandbox.ID, config, sandboxConfig)
	if err != nil {
		return &startError{reason: reasonCreate, err: err}
	}
	w.event(pod, a.Container, v1.EventTypeNormal, "Created", "Container created")
	if err := service.StartContainer(ctx, id); err != nil {
		return &startError{reason: reasonRun, err: err, run: id}
	}
	w.event(pod, a.Container, v1.EventTypeNormal, "Started", "Container started")
	return nil
}

// volumeImages makes the images of the container's image volumes present (KEP-4639), and
// returns their IDs by their reference.
func (w *Worker) volumeImages(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (map[string]string, error) {
	ids := map[string]string{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume.Name })
		if volume.Image == nil || !mounted {
			continue
		}
		// As a nameless container's: what is told about it is told about the pod.
		wanted := &v1.Container{Image: volume.Image.Reference, ImagePullPolicy: volume.Image.PullPolicy}
		image, err := w.parts.Images.EnsurePresent(ctx, pod, wanted, sandbox)
		if err != nil {
			return nil, err
		}
		ids[volume.Image.Reference] = image.Ref
	}
	return ids, nil
}

// currentSandbox returns the pod's ready sandbox, and the configuration that describes
// it to CreateContainer.
func (w *Worker) currentSandbox(pod *v1.Pod) (runtime.Sandbox, *runtimeapi.PodSandboxConfig, error) {
	last := w.parts.Runtime.Last(pod.UID)
	if last == nil {
		return runtime.Sandbox{}, nil, errors.New("the pod has no sandbox")
	}
	sandbox, ok := last.ReadySandbox()
	if !ok {
		return runtime.Sandbox{}, nil, errors.New("the pod's sandbox is not ready")
	}
	parent, err := w.parts.Cgroups.Grow(pod) // other containers may not have been made smaller yet
	if err != nil {
		return runtime.Sandbox{}, nil, err
	}
	dns, _, err := w.parts.Host.DNS.For(pod)
	if err != nil {
		return runtime.Sandbox{}, nil, err
	}
	config, err := w.parts.Host.sandboxConfig(pod, sandbox.Attempt, parent, dns)
	return sandbox, config, err
}

// configure completes a run's environment and mounts, and its files on the node.
func (w *Worker) configure(ctx context.Context, r newRun) (*runtimeapi.ContainerConfig, error) {
	var err error
	if r.env, err = w.parts.Environment.For(ctx, r.pod, r.container); err != nil {
		return nil, err
	}
	if r.mounts, err = w.parts.Volumes.Mounts(ctx, r.pod, r.container, r.env); err != nil {
		return nil, err
	}
	for _, m := range r.mounts {
		if m.Image != nil {
			m.Image.Image = r.volumeImages[m.Image.UserSpecifiedImage]
		}
	}
	if err := w.mountHosts(&r); err != nil {
		return nil, err
	}
	if err := w.mountTerminationLog(&r); err != nil {
		return nil, err
	}
	if r.target, err = w.target(r.pod, r.container); err != nil {
		return nil, err
	}
	layout := w.parts.Host.Layout
	logs := filepath.Join(layout.PodLogsDir(r.pod.Namespace, r.pod.Name, r.pod.UID), r.container.Name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, fmt.Errorf("make the container's log directory: %w", err)
	}
	return w.parts.Host.containerConfig(r)
}

// mountHosts adds /etc/hosts unless the container mounts its own.
func (w *Worker) mountHosts(r *newRun) error {
	for _, m := range r.container.VolumeMounts {
		if m.MountPath == etcHosts {
			return nil
		}
	}
	var ips []string
	for _, ip := range r.pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	path, err := writeHosts(w.parts.Host.Layout, r.pod, ips, w.parts.Host.DNS.Domain)
	if err != nil {
		return err
	}
	r.mounts = append(r.mounts, &runtimeapi.Mount{ContainerPath: etcHosts, HostPath: path, SelinuxRelabel: true})
	return nil
}

// mountTerminationLog adds the file at terminationMessagePath. Any user may write it. It is not
// synced: the container that writes it does not survive power loss either.
func (w *Worker) mountTerminationLog(r *newRun) error {
	if r.container.TerminationMessagePath == "" {
		return nil
	}
	path := w.parts.Host.Layout.TerminationLog(r.pod.UID, r.container.Name, r.action.Attempt)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the termination log's directory: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("make the termination log: %w", err)
	}
	defer file.Close()
	if err := file.Chmod(0o666); err != nil { // whatever the umask
		return fmt.Errorf("make the termination log: %w", err)
	}
	r.mounts = append(r.mounts, &runtimeapi.Mount{
		ContainerPath: r.container.TerminationMessagePath, HostPath: path, SelinuxRelabel: true,
	})
	return nil
}

// target returns the container whose processes an ephemeral container joins.
func (w *Worker) target(pod *v1.Pod, c *v1.Container) (id string, err error) {
	for i := range pod.Spec.EphemeralContainers {
		e := &pod.Spec.EphemeralContainers[i]
		if e.Name != c.Name || e.TargetContainerName == "" {
			continue
		}
		for _, run := range w.lastSeen() {
			if run.Name == e.TargetContainerName && run.State == runtime.Running {
				return run.ID, nil
			}
		}
		return "", fmt.Errorf("unable to find target container %s", e.TargetContainerName)
	}
	return "", nil
}

// postStart runs a container's postStart hook. A container whose hook failed is
// stopped.
func (w *Worker) postStart(ctx context.Context, pod *v1.Pod, a Action) func(*Memory) {
	c := containerOf(pod, a.Container)
	message, err := w.parts.Handlers.Run(ctx, w.Pod(), c, a.ID, c.Lifecycle.PostStart)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		// The message stays out of the event: a hook's output may be secret.
		w.event(pod, a.Container, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	}
	return func(m *Memory) {
		run := m.Runs[a.ID]
		run.Hooked, run.HookFailed = err == nil, err != nil
		m.Runs[a.ID] = run
		if err != nil {
			m.Failures[a.Container] = Failure{Reason: reasonPostStartHook, Message: message}
		}
	}
}
