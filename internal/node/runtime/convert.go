// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxItem is what a sandbox in a list and the status of a sandbox have in common.
type sandboxItem interface {
	GetId() string
	GetMetadata() *runtimeapi.PodSandboxMetadata
	GetState() runtimeapi.PodSandboxState
	GetCreatedAt() int64
}

func newSandbox(s sandboxItem) Sandbox {
	return Sandbox{
		ID:        s.GetId(),
		Attempt:   s.GetMetadata().GetAttempt(),
		Ready:     s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: time.Unix(0, s.GetCreatedAt()),
	}
}

// sandboxOf returns a sandbox with all details.
func sandboxOf(s *runtimeapi.PodSandboxStatus) Sandbox {
	sandbox := newSandbox(s)
	if sandbox.Ready {
		sandbox.IPs = addresses(s.GetNetwork())
	}
	return sandbox
}

// containerItem is what a container in a list and the status of a container have in common.
type containerItem interface {
	GetId() string
	GetMetadata() *runtimeapi.ContainerMetadata
	GetState() runtimeapi.ContainerState
	GetCreatedAt() int64
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}

func newContainer(c containerItem, sandbox string) Container {
	annotations := c.GetAnnotations()
	return Container{
		ID:                c.GetId(),
		Name:              c.GetLabels()[LabelContainerName],
		SandboxID:         sandbox,
		Attempt:           attempt(annotations, c.GetMetadata().GetAttempt()),
		State:             stateOf(c.GetState()),
		Hash:              annotations[AnnotationHash],
		BackOff:           backOff(annotations),
		Size:              annotations[AnnotationSize],
		Life:              life(annotations),
		TerminationPolicy: annotations[AnnotationTerminationRule],
		MessageFile:       annotations[AnnotationMessageFile],
		CreatedAt:         time.Unix(0, c.GetCreatedAt()),
	}
}

func fill(c *Container, s *runtimeapi.ContainerStatus) {
	c.State = stateOf(s.State)
	c.Image = s.GetImage().GetImage()
	c.ImageID = s.ImageRef
	c.LogPath = s.LogPath
	if c.State != Created {
		c.StartedAt = time.Unix(0, s.StartedAt)
	}
	if c.State == Exited {
		c.FinishedAt = time.Unix(0, s.FinishedAt)
		c.ExitCode, c.Reason, c.Message = s.ExitCode, s.Reason, s.Message
	}
	if u := s.GetUser().GetLinux(); u != nil {
		c.User = &User{UID: u.Uid, GID: u.Gid, SupplementalGroups: u.SupplementalGroups}
	}
}

func addresses(network *runtimeapi.PodSandboxNetworkStatus) []string {
	if network.GetIp() == "" {
		return nil
	}
	ips := []string{network.Ip}
	for _, more := range network.AdditionalIps {
		ips = append(ips, more.Ip)
	}
	return ips
}

func stateOf(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return Exited
	}
	return Unknown
}
