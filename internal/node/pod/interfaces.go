// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// This file has one small interface for each part of the node that a worker uses. The worker
// decides order, retries, backoff and status. All methods are safe for concurrent use by many
// workers and idempotent (a restarted agent calls them again for a running pod), and return
// promptly once ctx is done.

// Volumes manages the volumes of pods, below rootdir.Layout.VolumesDir.
type Volumes interface {
	// Prepare makes every volume present that the pod's containers mount, with its content and
	// ownership (fsGroup), and keeps API-backed content up to date until Teardown. It is called
	// before the sandbox is created, and again after an agent restart. Its errors are
	// VolumeErrors, which the worker records (see VolumeErrors), before it retries with backoff, or
	// TooManyVolumes, with which the pod fails.
	Prepare(ctx context.Context, pod *v1.Pod) error

	// Mounts returns the CRI mounts for the container's volumeMounts, in their order. Prepare must
	// have succeeded. env is the container's environment, for subPathExpr. The worker adds
	// /etc/hosts and the termination log itself. The mount of an image volume has the pod's
	// reference of the image, which the worker replaces by the image's ID. An error becomes
	// CreateContainerConfigError.
	Mounts(ctx context.Context, pod *v1.Pod, container *v1.Container, env []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error)

	// Devices returns the CRI devices for the container's volumeDevices, in their order. Prepare
	// must have succeeded. An error becomes CreateContainerConfigError.
	Devices(pod *v1.Pod, container *v1.Container) ([]*runtimeapi.Device, error)

	// Groups returns the supplemental groups that the pod's containers get for its volumes, beside
	// those in its security context. Prepare must have succeeded.
	Groups(pod *v1.Pod) []int64

	// DetachContent detaches the mounts of a pod whose containers have exited that only show content of the API, and ends
	// the updates of content. Teardown would do the same. It is a method of its own because the kernel takes long, and
	// these mounts may go while the sandbox still stops.
	DetachContent(uid types.UID) error

	// Teardown unmounts and removes all volumes of a pod whose containers have exited. It reads
	// what to remove from disk, so that it works for pods that the API no longer has.
	Teardown(ctx context.Context, uid types.UID) error
}

// VolumeError is the failure to prepare a volume.
type VolumeError struct {
	// Reason of the event: FailedMount or FailedMapVolume; "" if there is none, because the volume
	// only waits for what another part of the cluster reports.
	Reason string
	// Message is the text of upstream's event (`MountVolume.SetUp failed for volume "v" : configmap
	// "c" not found`).
	Message string
}

func (e *VolumeError) Error() string { return e.Message }

// TooManyVolumes is the failure to attach a volume because the node has as many as it can have (KEP-4876).
type TooManyVolumes struct {
	Message string // for the event and the pod's status
}

func (e *TooManyVolumes) Error() string { return e.Message }

// VolumeErrors returns the failures that an error of Volumes.Prepare has events for.
func VolumeErrors(err error) []VolumeError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []VolumeError
		for _, e := range joined.Unwrap() {
			all = append(all, VolumeErrors(e)...)
		}
		return all
	}
	var failure *VolumeError
	switch {
	case !errors.As(err, &failure):
		return []VolumeError{{Reason: "FailedMount", Message: err.Error()}}
	case failure.Reason == "":
		return nil
	}
	return []VolumeError{*failure}
}

// Claims has drivers prepare the devices of ResourceClaims (KEP-4381).
type Claims interface {
	// Prepare has the devices of the pod's claims prepared. It is called before the sandbox is created.
	// pod.Status has the names of claims that were created for the pod.
	Prepare(ctx context.Context, pod *v1.Pod) error
	// Devices returns the CDI devices of the container's claims. An error becomes
	// CreateContainerConfigError.
	Devices(pod *v1.Pod, container *v1.Container) ([]*runtimeapi.CDIDevice, error)
	// Health returns the health of the devices of each container of the pod, by container (KEP-4680).
	Health(pod *v1.Pod) map[string][]v1.ResourceStatus
	// Unprepare gives up the claims of a pod whose containers have exited. It reads them from disk, so
	// that it works for pods that the API no longer has.
	Unprepare(ctx context.Context, uid types.UID) error
}

// Resources has the CPUs, memory and devices that were assigned to a pod when it was admitted. It works for pods that
// the API no longer has.
type Resources interface {
	// Prepare returns what a container that is about to be created gets, after plugins have prepared its devices. An
	// error becomes CreateContainerConfigError.
	Prepare(ctx context.Context, pod *v1.Pod, container string) (criconfig.Assigned, error)
	// Exclusive reports whether a container has CPUs of its own, so that its CPU limit is not enforced.
	Exclusive(uid types.UID, container string) bool
	// Has reports whether the pod has something that Release would free.
	Has(uid types.UID) bool
	// Health returns the health of the pod's devices, by container (KEP-4680).
	Health(uid types.UID) map[string][]v1.ResourceStatus
	// Release frees what a pod has whose containers have exited.
	Release(uid types.UID) error
}

// UserNamespaces gives pods with hostUsers: false their IDs (KEP-127).
type UserNamespaces interface {
	// For returns the pod's user namespace. The first call allocates it, and fails if the runtime handler does not support
	// user namespaces; later calls, also of another agent, return the same.
	For(uid types.UID, handler string) (*runtimeapi.UserNamespace, error)
	// Release frees the IDs of a pod that does not run any more and has no volumes.
	Release(uid types.UID) error
}

// Environment computes a container's environment.
type Environment interface {
	// For returns the environment in order: service variables (enableServiceLinks), envFrom, then
	// env, with $(VAR) expanded and field and resource references resolved. pod.Status has the
	// podIPs and hostIPs that the worker knows. An error (a missing ConfigMap, Secret or key)
	// becomes CreateContainerConfigError, with the error's text as message: `configmap "c" not
	// found`.
	For(ctx context.Context, pod *v1.Pod, container *v1.Container) ([]*runtimeapi.KeyValue, error)
}

// Images makes a container's image present.
type Images interface {
	// EnsurePresent returns the image once it is present, by imagePullPolicy and pull secrets. It
	// blocks while it pulls. During the backoff of a failed pull it does not block: it returns
	// ImagePullBackOff at once. A failure is an *ImageError. EnsurePresent records the events
	// Pulling, Pulled, Failed and BackOff itself, on ContainerReference. For an image that is
	// present, with policy IfNotPresent or Never, it makes at most one ImageStatus call.
	EnsurePresent(ctx context.Context, pod *v1.Pod, container *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (criconfig.Image, error)
}

// ImageError is the failure to make a container's image present. Its reason and message become the
// container's waiting state.
type ImageError struct {
	// Reason is ErrImagePull, ImagePullBackOff, ErrImageNeverPull,
	// InvalidImageName, ImageInspectError or RegistryUnavailable.
	Reason  string
	Message string
}

func (e *ImageError) Error() string { return e.Message }

// ProbeKind is one of the three kinds of probes.
type ProbeKind string

// The kinds of probes.
const (
	Liveness  ProbeKind = "Liveness"
	Readiness ProbeKind = "Readiness"
	Startup   ProbeKind = "Startup"
)

// Probes runs the probes of running containers.
type Probes interface {
	// Start starts all probes that the container declares, and calls report each time the result
	// of a probe (after success and failure thresholds) becomes known or changes. Liveness and
	// readiness probes wait for the startup probe. A liveness or startup probe that has failed
	// pauses: the worker stops the container and probes the next run. Each failed attempt is
	// recorded as event Unhealthy on ContainerReference. report must not block. A second Start
	// for the same ContainerID does nothing.
	Start(target ProbeTarget, report func(ProbeResult))

	// Stop stops all probes of the container. If the container is not probed, it does nothing.
	Stop(containerID string)

	// StopLiveness stops the liveness and startup probes of a container that is to stop. Its
	// readiness probe continues, and decides whether endpoints have the terminating pod as
	// serving.
	StopLiveness(containerID string)
}

// ProbeTarget is the container to probe.
type ProbeTarget struct {
	Pod         *v1.Pod // with status.podIPs as known to the worker
	Container   *v1.Container
	ContainerID string // the runtime's ID, without scheme
	// StartedAt is the start of the container, where initialDelaySeconds begins.
	StartedAt metav1.Time
	// Started is set if the startup probe succeeded before the agent restarted.
	Started bool
}

// ProbeResult is the result of one probe.
type ProbeResult struct {
	ContainerID string
	Kind        ProbeKind
	Success     bool
	// Message is the last probe's output or error.
	Message string
}

// Logs keeps the log files of running containers within their size limit.
type Logs interface {
	// Start starts to rotate the log file of a running container, which the runtime writes in
	// CRI format at path. A second Start for the same ID does nothing.
	Start(containerID, path string)
	// Stop stops the rotation. The worker removes the files with the container.
	Stop(containerID string)
}

// Lookup finds pods and their containers for the node's HTTP server (logs, exec, attach,
// port-forward). The agent implements it.
type Lookup interface {
	// Pod returns the pod with the newest status that the agent has computed, or false. An empty
	// uid matches any pod of this name.
	Pod(namespace, name string, uid types.UID) (*v1.Pod, bool)
	// Pods returns all pods of the node, with the newest statuses.
	Pods() []*v1.Pod
	// Container returns the container's newest run or, if previous is set, the run that its status has as lastState. It
	// returns false if the runtime does not have the run, or does not answer.
	Container(ctx context.Context, uid types.UID, name string, previous bool) (ContainerInstance, bool)
	// Sandbox returns the ID of the pod's ready sandbox, or false.
	Sandbox(ctx context.Context, uid types.UID) (string, bool)
}

// ContainerInstance is one run of a container in the runtime.
type ContainerInstance struct {
	ID      string // the runtime's ID, without scheme
	Running bool
	LogPath string // absolute
}

// Handlers runs the lifecycle hooks of a container.
type Handlers interface {
	// Run runs one hook to its end. message describes a failure, for the container's status.
	Run(ctx context.Context, pod *v1.Pod, container *v1.Container, containerID string, handler *v1.LifecycleHandler) (message string, err error)
}

// Cgroups manages the pod-level cgroups.
type Cgroups interface {
	// Ensure creates the pod's cgroup with its limits and returns its path, for the sandbox's
	// cgroup parent; "" if the node has no pod-level cgroups.
	Ensure(pod *v1.Pod) (string, error)
	// Grow is like Ensure, but does not lower a limit.
	Grow(pod *v1.Pod) (string, error)
	// Memory returns how much memory the pod's containers use together, and the limit of the pod's cgroup. The limit is
	// negative if there is none, and 0 if the node has no pod-level cgroups.
	Memory(pod *v1.Pod) (used uint64, limit int64, err error)
	// Kill kills the processes of one of the pod's containers, by the runtime's ID.
	Kill(uid types.UID, container string) error
	// Remove removes the pod's cgroup. A missing one is not an error.
	Remove(uid types.UID) error
}
