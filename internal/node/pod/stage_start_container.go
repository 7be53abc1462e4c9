// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// startError is a failed start. Its reason and text become the container's waiting state.
type startError struct {
	reason string
	err    error
	run    string // the ID of the container if it was created and could not be started
}

func (e *startError) Error() string { return runtime.Message(e.err) }

// startContainer is the stage of StartContainer, for init, app and ephemeral containers. It makes
// the image present, configures the run, creates it and starts it.
//
// Assumes: volumes and devices are ready, the pod's newest sandbox is ready, and no other run of the container
// is running or starting.
// Leaves: a running container, numbered Action.Attempt, with Action.BackOff in its annotations; no
// Failure of the container.
// On failure: an event (package image records those about images) and a Failure of the container.
// A run that was created and could not be started stays, with RunMemory.StartFailed: it counts as
// a restart. Decide removes a created or exited run without StartFailed, and starts it again: one that was
// not started because the pod's NetworkPolicies were not in force in time, or because the agent crashed.
// If the pod is to stop, nothing more is created and no failure is left.
func (w *Worker) startContainer(ctx context.Context, t task) func(*Memory) {
	err := w.tryStart(ctx, t)
	if ctx.Err() == nil {
		w.observeStart(t, err)
	}
	if err == nil {
		return func(m *Memory) { delete(m.Failures, OfContainer(t.Container)) }
	}
	if ctx.Err() != nil {
		return nil
	}
	var image *ImageError
	if errors.As(err, &image) {
		return w.failedImage(t.Container, image)
	}
	var start *startError
	if !errors.As(err, &start) {
		start = &startError{reason: reasonCreateConfig, err: err}
	}
	w.event(t.pod, t.Container, v1.EventTypeWarning, "Failed", "Error: "+start.Error())
	failed := w.failed(OfContainer(t.Container), start.reason, start.Error())
	return func(m *Memory) {
		failed(m)
		if start.run != "" {
			m.Runs[start.run] = RunMemory{StartFailed: true}
		}
	}
}

// failedImage returns the change to memory after a missing image. Images keeps the back-off of
// pulls itself and refuses early attempts, so that the pause here does not grow.
func (w *Worker) failedImage(container string, image *ImageError) func(*Memory) {
	at := w.parts.Clock.Now().Add(retryMax)
	return func(m *Memory) {
		m.Failures[OfContainer(container)] = Failure{Reason: image.Reason, Message: image.Message, RetryAt: at}
	}
}

func (w *Worker) tryStart(ctx context.Context, t task) error {
	sandbox, sandboxConfig, err := w.currentSandbox(t.pod)
	if err != nil {
		return err
	}
	c := containerOf(t.pod, t.Container)
	image, err := w.ensureImage(ctx, t.pod, c, sandboxConfig)
	if err != nil {
		return err
	}
	volumeImages, err := w.volumeImages(ctx, t.pod, c, sandboxConfig)
	if err != nil {
		return err
	}
	config, err := w.configure(ctx, criconfig.Run{
		Pod: w.Pod(), Container: c, Attempt: t.Attempt, BackOff: t.BackOff, Life: t.Life, Image: image,
		Users: sandboxConfig.Linux.SecurityContext.NamespaceOptions.UsernsOptions,
	}, volumeImages)
	if err != nil {
		return &startError{reason: reasonCreateConfig, err: err}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// From here on calls are not cancelled: the runtime would count the start as failed.
	uncancelled := context.WithoutCancel(ctx)
	id, err := w.parts.Runtime.CreateContainer(uncancelled, w.uid, sandbox.ID, config, sandboxConfig)
	w.observeImageVolumes(len(volumeImages), err)
	if err != nil {
		return &startError{reason: reasonCreate, err: err}
	}
	w.event(t.pod, t.Container, v1.EventTypeNormal, "Created", "Container created")
	w.limitBandwidth(t.pod, sandbox)
	if err := w.awaitNetwork(ctx, t.pod, sandbox); err != nil {
		return &startError{reason: reasonRun, err: err}
	}
	w.linkLog(ctx, t, id)
	if err := w.parts.Runtime.StartContainer(uncancelled, w.uid, sandbox.ID, id); err != nil {
		return &startError{reason: reasonRun, err: err, run: id}
	}
	w.event(t.pod, t.Container, v1.EventTypeNormal, "Started", "Container started")
	return nil
}

// linkLog makes the link to the log of a run, which only log shippers need. It is made before the run starts, so that no crash
// leaves a run without it.
func (w *Worker) linkLog(ctx context.Context, t task, id string) {
	layout := w.parts.Host.Layout
	link := layout.Link(t.pod.Namespace, t.pod.Name, t.Container, id)
	if link == "" {
		return
	}
	log := filepath.Join(layout.PodLogsDir(t.pod.Namespace, t.pod.Name, t.pod.UID), layout.ContainerLog(t.Container, t.Attempt))
	if err := os.Symlink(log, link); err != nil && !errors.Is(err, fs.ErrExist) {
		klog.FromContext(ctx).Error(err, "Log shippers do not find the log of a container", "pod", klog.KObj(t.pod), "container", t.Container)
	}
}

// volumeImages makes the images of the container's image volumes present (KEP-4639) and returns
// their IDs by reference.
func (w *Worker) volumeImages(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (map[string]string, error) {
	ids := map[string]string{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume.Name })
		if volume.Image == nil || !mounted {
			continue
		}
		// The container has no name, so that events about the image are recorded on the pod.
		wanted := &v1.Container{Image: volume.Image.Reference, ImagePullPolicy: volume.Image.PullPolicy}
		image, err := w.ensureImage(ctx, pod, wanted, sandbox)
		if err != nil {
			w.observeImageVolumes(1, err)
			return nil, err
		}
		ids[volume.Image.Reference] = image.Ref
	}
	return ids, nil
}

// currentSandbox returns the pod's ready sandbox, and its configuration, which CreateContainer
// wants again.
func (w *Worker) currentSandbox(pod *v1.Pod) (runtime.Sandbox, *runtimeapi.PodSandboxConfig, error) {
	last := w.parts.Runtime.Last(pod.UID)
	if last == nil {
		return runtime.Sandbox{}, nil, errors.New("the pod has no sandbox")
	}
	sandbox, ok := last.ReadySandbox()
	if !ok {
		return runtime.Sandbox{}, nil, errors.New("the pod's sandbox is not ready")
	}
	parent, err := w.parts.Cgroups.Grow(pod) // not Ensure: a resize may not have shrunk other containers yet
	if err != nil {
		return runtime.Sandbox{}, nil, err
	}
	dns, err := w.parts.Host.DNS.For(pod)
	if err != nil {
		return runtime.Sandbox{}, nil, err
	}
	users, err := w.userNamespace(pod, "") // allocated with the sandbox
	if err != nil {
		return runtime.Sandbox{}, nil, err
	}
	config, err := w.parts.Host.Sandbox(w.withGroups(pod), sandbox.Attempt, parent, dns, users)
	return sandbox, config, err
}

// configure completes a run with its environment, its mounts and the ID of its target container,
// creates its files on the node and returns its configuration. images are the IDs of the images of
// image volumes, by reference.
func (w *Worker) configure(ctx context.Context, r criconfig.Run, images map[string]string) (*runtimeapi.ContainerConfig, error) {
	var err error
	if r.Env, err = w.parts.Environment.For(ctx, r.Pod, r.Container); err != nil {
		return nil, err
	}
	if r.Mounts, err = w.parts.Volumes.Mounts(ctx, r.Pod, r.Container, r.Env); err != nil {
		return nil, err
	}
	if r.Devices, err = w.parts.Volumes.Devices(r.Pod, r.Container); err != nil {
		return nil, err
	}
	if usesClaims(r.Pod) {
		if r.CDIDevices, err = w.parts.Claims.Devices(r.Pod, r.Container); err != nil {
			return nil, err
		}
	}
	if r.Assigned, err = w.parts.Resources.Prepare(ctx, r.Pod, r.Container.Name); err != nil {
		return nil, err
	}
	for _, m := range r.Mounts {
		if m.Image != nil {
			m.Image.Image = images[m.Image.UserSpecifiedImage]
		}
	}
	if err := w.mountHosts(&r); err != nil {
		return nil, err
	}
	if err := w.mountTerminationLog(&r); err != nil {
		return nil, err
	}
	if r.Target, err = w.targetOf(r.Pod, r.Container); err != nil {
		return nil, err
	}
	layout := w.parts.Host.Layout
	logs := filepath.Join(layout.PodLogsDir(r.Pod.Namespace, r.Pod.Name, r.Pod.UID), r.Container.Name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, fmt.Errorf("create the container's log directory: %w", err)
	}
	r.Pod = w.withGroups(r.Pod)
	return w.parts.Host.Container(r)
}

// withGroups adds the groups of the pod's volumes to its supplemental groups.
func (w *Worker) withGroups(pod *v1.Pod) *v1.Pod {
	groups := w.parts.Volumes.Groups(pod)
	if len(groups) == 0 {
		return pod
	}
	pod = pod.DeepCopy()
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{}
	}
	pod.Spec.SecurityContext.SupplementalGroups = append(pod.Spec.SecurityContext.SupplementalGroups, groups...)
	return pod
}

// mountHosts adds the mount of /etc/hosts unless the container mounts its own.
func (w *Worker) mountHosts(r *criconfig.Run) error {
	for _, m := range r.Container.VolumeMounts {
		if m.MountPath == criconfig.EtcHosts {
			return nil
		}
	}
	path, err := w.parts.Host.WriteHosts(r.Pod)
	if err != nil {
		return err
	}
	r.Mounts = append(r.Mounts, &runtimeapi.Mount{ContainerPath: criconfig.EtcHosts, HostPath: path, SelinuxRelabel: true})
	return nil
}

// mountTerminationLog creates the file for terminationMessagePath, writable for every user, and
// adds its mount. The file is not synced: no container that writes it survives power loss.
func (w *Worker) mountTerminationLog(r *criconfig.Run) error {
	if r.Container.TerminationMessagePath == "" {
		return nil
	}
	path := w.parts.Host.Layout.TerminationLog(r.Pod.UID, r.Container.Name, r.Attempt)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create the termination log's directory: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("create the termination log: %w", err)
	}
	defer file.Close()
	if err := file.Chmod(0o666); err != nil { // whatever the umask
		return fmt.Errorf("create the termination log: %w", err)
	}
	r.Mounts = append(r.Mounts, &runtimeapi.Mount{
		ContainerPath: r.Container.TerminationMessagePath, HostPath: path, SelinuxRelabel: true,
	})
	return nil
}

// targetOf returns the ID of the container whose process namespace an ephemeral container joins.
func (w *Worker) targetOf(pod *v1.Pod, c *v1.Container) (id string, err error) {
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
