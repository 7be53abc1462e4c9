// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pod is one pod as the runtime has it. Both lists have the newest first.
type Pod struct {
	UID       types.UID
	Namespace string
	Name      string
	// Source is where the pod is from, as the annotation of its sandboxes says; "" for pods of the API.
	Source     string
	Sandboxes  []Sandbox
	Containers []Container
}

// Sandbox is one pod sandbox.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs is empty for a sandbox on the host's network or one that is not ready.
	IPs []string
}

// State is the state of a container.
type State int

// The states of a container.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

func (s State) String() string {
	return [...]string{"unknown", "created", "running", "exited"}[s]
}

// Container is one run of a container.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	// Attempt numbers the runs of the container from 0, and is its restart count.
	Attempt uint32
	State   State
	// Hash identifies the part of the container's spec whose change requires a restart.
	Hash string
	// BackOff is the delay between the end of this run and the next run.
	BackOff time.Duration
	// Life counts the restarts of all containers of the pod before this run.
	Life int
	// Size is the value of AnnotationSize.
	Size string

	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int32
	Reason     string
	Message    string

	Image   string
	ImageID string
	LogPath string
	// TerminationPolicy and MessageFile are where an exited container's message comes from.
	TerminationPolicy string
	MessageFile       string
	// User is the identity of the first process; nil if the runtime does not report it.
	User *User
}

// User is a Linux process identity.
type User struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// ReadySandbox returns the newest sandbox if it is ready.
func (p *Pod) ReadySandbox() (Sandbox, bool) {
	if len(p.Sandboxes) == 0 || !p.Sandboxes[0].Ready {
		return Sandbox{}, false
	}
	return p.Sandboxes[0], true
}

// Runs returns the runs of one container, newest first.
func (p *Pod) Runs(name string) []Container {
	var runs []Container
	for _, c := range p.Containers {
		if c.Name == name {
			runs = append(runs, c)
		}
	}
	return runs
}

// Latest returns the newest run of a container.
func (p *Pod) Latest(name string) (Container, bool) {
	for _, c := range p.Containers {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

// Same reports whether a pod has the same sandboxes and containers, in the same states, as other.
func (p *Pod) Same(other *Pod) bool {
	if len(p.Sandboxes) != len(other.Sandboxes) || len(p.Containers) != len(other.Containers) {
		return false
	}
	for i, s := range p.Sandboxes {
		if s.ID != other.Sandboxes[i].ID || s.Ready != other.Sandboxes[i].Ready {
			return false
		}
	}
	for i, c := range p.Containers {
		if c.ID != other.Containers[i].ID || c.State != other.Containers[i].State {
			return false
		}
	}
	return true
}

func (p *Pod) sort() {
	slices.SortStableFunc(p.Sandboxes, func(a, b Sandbox) int {
		if a.Attempt != b.Attempt {
			return int(b.Attempt) - int(a.Attempt)
		}
		return b.CreatedAt.Compare(a.CreatedAt)
	})
	slices.SortStableFunc(p.Containers, func(a, b Container) int {
		if a.Attempt != b.Attempt {
			return int(b.Attempt) - int(a.Attempt)
		}
		return b.CreatedAt.Compare(a.CreatedAt)
	})
}
