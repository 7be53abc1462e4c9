// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// This file is what a pod's worker asks of the rest of the node: one small
// interface for each stage whose work lives in a package of its own. The
// worker owns order, retries, back-off and status; the packages behind these
// interfaces own the how. All methods may be called by many workers at once,
// all are idempotent (a restarted agent calls them again for a running pod),
// and all return promptly once ctx is done.

// Volumes makes a pod's volumes exist on the node.
// Files of a pod live below Layout.PodDir(uid); see layout.go.
type Volumes interface {
	// Prepare makes every volume the pod's containers mount present, with its
	// content and ownership (fsGroup), and keeps API-backed content fresh until
	// Teardown. It is called before the sandbox is created, and again after an
	// agent restart. An error reads as upstream's
	// FailedMount event does (`MountVolume.SetUp failed for volume "v" :
	// configmap "c" not found`); the worker publishes it and retries with
	// back-off.
	Prepare(ctx context.Context, pod *v1.Pod) error

	// Mounts returns the CRI mounts for the container's volumeMounts, in their
	// order, after Prepare succeeded. env is the container's full environment
	// and serves subPathExpr. The worker itself adds /etc/hosts and the
	// termination log. An image volume's mount names the image as the pod does; the
	// worker puts the image's ID there. An error becomes CreateContainerConfigError.
	Mounts(ctx context.Context, pod *v1.Pod, container *v1.Container, env []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error)

	// Teardown unmounts and removes all volumes of a pod whose containers are
	// gone. It works from what is on disk, so that it also serves pods which the
	// API no longer knows.
	Teardown(ctx context.Context, uid types.UID) error
}

// Environment computes a container's environment.
type Environment interface {
	// For returns the full ordered environment: service variables
	// (enableServiceLinks), envFrom, then env with $(VAR) expanded, field and
	// resource references resolved. pod.Status carries podIPs and hostIPs as
	// known to the worker. An error (a missing ConfigMap, Secret or key) becomes
	// CreateContainerConfigError with the error's text as message, as in
	// `configmap "c" not found`.
	For(ctx context.Context, pod *v1.Pod, container *v1.Container) ([]*runtimeapi.KeyValue, error)
}

// Images makes a container's image present.
type Images interface {
	// EnsurePresent applies imagePullPolicy, pull secrets and pull back-off, and
	// returns the image once it is there. It blocks while it pulls; it never
	// waits for a back-off but returns ImagePullBackOff at once. Failures are an
	// *ImageError. It records the events Pulling, Pulled, Failed and BackOff
	// itself, on the container's object reference (ContainerReference). A
	// present image with policy IfNotPresent or Never costs no more than one
	// ImageStatus call.
	EnsurePresent(ctx context.Context, pod *v1.Pod, container *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (Image, error)
}

// Image is a present image.
type Image struct {
	// Ref is what goes in ContainerConfig.image: the runtime's image ID.
	Ref string
	// User is the image's configured user, for the runAsNonRoot check: UID when
	// numeric, else Username; both empty means root.
	UID      *int64
	Username string
}

// ImageError says why a container's image is not there. Its reason and message
// become the container's waiting state.
type ImageError struct {
	// Reason is ErrImagePull, ImagePullBackOff, ErrImageNeverPull,
	// InvalidImageName, ImageInspectError or RegistryUnavailable.
	Reason  string
	Message string
}

func (e *ImageError) Error() string { return e.Message }

// ProbeKind names one of the three kinds of probe.
type ProbeKind string

// The three kinds of probe.
const (
	Liveness  ProbeKind = "Liveness"
	Readiness ProbeKind = "Readiness"
	Startup   ProbeKind = "Startup"
)

// Probes runs the probes of running containers.
type Probes interface {
	// Start begins to run all probes the container declares, and calls report
	// each time a probe's result (after success and failure thresholds) becomes
	// known or changes. Results of probes which are not declared are never
	// reported. Liveness and readiness probes wait for the startup probe. After a
	// failed liveness or startup probe that probe rests: the worker kills the
	// container and starts probing its successor. Each failed attempt is recorded as
	// event Unhealthy on ContainerReference. report does not block. A second
	// Start of the same ContainerID is a no-op.
	Start(target ProbeTarget, report func(ProbeResult))

	// Stop ends all probing of the container.
	// Stop of a container which is not probed is a no-op.
	Stop(containerID string)

	// StopLiveness ends the liveness and startup probes of a container which is about to
	// be stopped, and leaves readiness running: a terminating pod stays out of
	// or in its endpoints by its own readiness.
	StopLiveness(containerID string)
}

// ProbeTarget is the container to probe.
type ProbeTarget struct {
	Pod         *v1.Pod // with status.podIPs as known to the worker
	Container   *v1.Container
	ContainerID string // the runtime's ID, without scheme
	// StartedAt is the container's start, from which initialDelaySeconds counts.
	StartedAt metav1.Time
	// Started says that the startup probe already succeeded, before the agent restarted.
	Started bool
}

// ProbeResult is the state of one probe.
type ProbeResult struct {
	ContainerID string
	Kind        ProbeKind
	Success     bool
	// Message is the last probe's output or error.
	Message string
}

// Logs keeps the log files of running containers within their size limit.
type Logs interface {
	// Start begins to watch the log file of a running container, which the runtime
	// writes in CRI format at path. A second Start of the same ID is a no-op.
	Start(containerID, path string)
	// Stop ends that. Files stay; the worker removes them with the container.
	Stop(containerID string)
}

// Lookup finds pods and their containers for the node's HTTP server (logs, exec,
// attach, port-forward). The agent implements it.
type Lookup interface {
	// Pod returns the pod with the newest status the agent has computed, or false.
	// uid may be empty.
	Pod(namespace, name string, uid types.UID) (*v1.Pod, bool)
	// Pods returns all pods of this node likewise.
	Pods() []*v1.Pod
	// Container returns the container's newest instance, or with previous the one
	// before it. False when the runtime holds no such instance.
	Container(uid types.UID, name string, previous bool) (ContainerInstance, bool)
	// Sandbox returns the ID of the pod's ready sandbox, or false.
	Sandbox(uid types.UID) (string, bool)
}

// ContainerInstance is one run of a container as the runtime holds it.
type ContainerInstance struct {
	ID      string // the runtime's ID, without scheme
	Running bool
	LogPath string // absolute
}

// Handlers runs the lifecycle hooks of a container.
type Handlers interface {
	// Run runs one handler to its end and returns an error if it failed; output is
	// what the hook said.
	Run(ctx context.Context, pod *v1.Pod, container *v1.Container, containerID string, handler *v1.LifecycleHandler) (output string, err error)
}

// Cgroups keeps the pod-level cgroups.
type Cgroups interface {
	// Ensure creates the pod's cgroup with its limits and returns its path for the
	// sandbox's cgroup parent; empty when the node keeps none.
	Ensure(pod *v1.Pod) (string, error)
	// Grow is Ensure, but for limits that would become smaller: those stay.
	Grow(pod *v1.Pod) (string, error)
	// Remove removes the pod's cgroup; a missing one is no error.
	Remove(uid types.UID) error
}
