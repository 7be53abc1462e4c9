// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import "time"

// Kind names what an action does. One stage carries out all actions of a kind; see stages.go for
// their order.
type Kind string

// The kinds of actions.
const (
	// PrepareVolumes makes the pod's volumes present.
	PrepareVolumes Kind = "PrepareVolumes"
	// PrepareClaims has drivers prepare the devices of the pod's ResourceClaims.
	PrepareClaims Kind = "PrepareClaims"
	// CreateSandbox creates the pod's cgroup, log directory and sandbox.
	CreateSandbox Kind = "CreateSandbox"
	// StartContainer makes the image present, then creates and starts a container.
	StartContainer Kind = "StartContainer"
	// PostStart runs a container's postStart hook.
	PostStart Kind = "PostStart"
	// ResizePod gives running containers and the pod's cgroup their allocated size.
	ResizePod Kind = "ResizePod"
	// PreStop runs a container's preStop hook.
	PreStop Kind = "PreStop"
	// StopContainer sends the stop signal, and SIGKILL at the deadline.
	StopContainer Kind = "StopContainer"
	// StopSandbox kills what is left in a sandbox and frees its network.
	StopSandbox Kind = "StopSandbox"
	// DetachContent detaches the mounts of content of the API, ahead of Release.
	DetachContent Kind = "DetachContent"
	// Release gives up the claims, the volumes and the cgroup of a pod without running containers.
	Release Kind = "Release"
	// RemoveContainer removes one run of a container and its log.
	RemoveContainer Kind = "RemoveContainer"
	// RemoveSandbox removes a sandbox and all its containers.
	RemoveSandbox Kind = "RemoveSandbox"
	// Clean removes the pod's directories, the last trace of the pod on the node.
	Clean Kind = "Clean"
)

// Action is one thing to do. Every action is idempotent: repeating it changes nothing.
type Action struct {
	Kind Kind
	// Container is the container's name, if the action concerns one.
	Container string
	// ID is the CRI ID of the sandbox or container to act on.
	ID string
	// Attempt numbers the sandbox to create or the run to start.
	Attempt uint32
	// BackOff is stored with a started container: the delay of the next run after it ends.
	BackOff time.Duration
	// Life is stored with a started container: the life of the pod's containers to which the run belongs.
	Life int
	// Deadline is when PreStop gives up, or when StopContainer kills.
	Deadline time.Time
}

// ActionKey identifies an action. At most one action with a key runs at a time.
type ActionKey struct {
	Kind Kind
	// Subject is the ID of the sandbox or container to act on, or the name of the container to
	// start; empty for an action on the whole pod.
	Subject string
}

// Key returns the action's key.
func (a Action) Key() ActionKey {
	if a.ID != "" {
		return ActionKey{a.Kind, a.ID}
	}
	return ActionKey{a.Kind, a.Container}
}

func (k ActionKey) String() string { return string(k.Kind) + "/" + k.Subject }
