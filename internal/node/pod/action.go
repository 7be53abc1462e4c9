// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"
	"time"
)

// Kind names what an action does. Each is carried out by one stage.
type Kind string

// The actions.
const (
	// PrepareVolumes makes the pod's volumes present.
	PrepareVolumes Kind = "PrepareVolumes"
	// CreateSandbox makes the pod's cgroup, log directory and sandbox.
	CreateSandbox Kind = "CreateSandbox"
	// StopSandbox kills what is left in a sandbox and frees its network.
	StopSandbox Kind = "StopSandbox"
	// RemoveSandbox removes a sandbox and all its containers.
	RemoveSandbox Kind = "RemoveSandbox"
	// StartContainer makes the image present, creates and starts a container.
	StartContainer Kind = "StartContainer"
	// PostStart and PreStop run a container's hooks.
	PostStart Kind = "PostStart"
	PreStop   Kind = "PreStop"
	// StopContainer sends the stop signal, and KILL at the deadline.
	StopContainer Kind = "StopContainer"
	// ResizePod gives running containers and the pod's cgroup the size that is allocated.
	ResizePod Kind = "ResizePod"
	// RemoveContainer removes one run of a container and its log.
	RemoveContainer Kind = "RemoveContainer"
	// Release tears down volumes and cgroup of a pod in which nothing runs.
	Release Kind = "Release"
	// Clean removes the pod's directories, the last thing of it on the node.
	Clean Kind = "Clean"
)

// Action is one thing to do. Every action may be repeated: doing it when it is
// already done changes nothing.
type Action struct {
	Kind Kind
	// Container is the container's name, where there is one.
	Container string
	// ID is the sandbox or container to act on.
	ID string
	// Attempt numbers the sandbox or the run to start.
	Attempt uint32
	// BackOff is recorded with a started container: how long to wait after it ends.
	BackOff time.Duration
	// Deadline is when PreStop has to give up, or StopContainer to kill.
	Deadline time.Time
}

// Key identifies an action among those under way: there is one at a time.
func (a Action) Key() string {
	if a.ID != "" {
		return key(a.Kind, a.ID)
	}
	return key(a.Kind, a.Container)
}

// short says whether an action takes but a moment, so that it is better brought to its
// end than cut short: a container whose start breaks off counts as failed.
func (a Action) short() bool {
	switch a.Kind {
	case CreateSandbox, StopSandbox, RemoveSandbox, StartContainer, RemoveContainer, ResizePod:
		return true
	}
	return false
}

func key(kind Kind, subject string) string { return string(kind) + "/" + subject }

func kindOf(key string) Kind {
	kind, _, _ := strings.Cut(key, "/")
	return Kind(kind)
}
