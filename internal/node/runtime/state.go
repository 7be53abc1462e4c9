// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pod is what the runtime holds of one pod. Both lists are newest first.
type Pod struct {
	UID        types.UID
	Namespace  string
	Name       string
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
	// Attempt is the restart count: the how-many-eth run this is, from 0.
	Attempt uint32
	State   State
	// Hash identifies the part of the container's spec whose change asks for a restart.
	Hash string
	// BackOff is how long to wait after the end of this run before the next.
	BackOff time.Duration
	// Size is the CPU and memory the run was created with, as whoever created it wrote it down.
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
	// TerminationPolicy and MessageFile say where an exited container's message is.
	TerminationPolicy string
	MessageFile       string
	// User is the identity the first process got, where the runtime tells.
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

// Same says whether two sightings differ in nothing that a worker acts on.
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
