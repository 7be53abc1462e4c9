// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// slot has the pods of one full name.
type slot struct {
	// desired is the pod of the manifest; nil if there is none.
	desired *v1.Pod
	// current is the pod that has a worker, with its newest status; nil if none has.
	current *v1.Pod
	// left is the pod that an earlier agent left in the runtime, until it is adopted or removed.
	left *runtime.Pod
	// stopping is set while current or left is being removed.
	stopping bool
	// ended is the last pod that was removed, with its last status; nil if there was none.
	ended *v1.Pod
}

// runsBefore returns the statuses of the containers that ran for the desired pod before it was removed. If its manifest
// returns at once, it is the same pod, which goes on counting its restarts.
func (s *slot) runsBefore() (status v1.PodStatus) {
	if s.ended != nil && s.ended.UID == s.desired.UID {
		status.InitContainerStatuses, status.ContainerStatuses = s.ended.Status.InitContainerStatuses, s.ended.Status.ContainerStatuses
	}
	return status
}

// step is what is to be done with a slot.
type step int

const (
	nothing step = iota
	start        // desired
	adopt        // left, which is desired
	stop         // current
	remove       // left
)

// next returns the next step. Until all sources have been read, a pod without a manifest may still get one.
func (s *slot) next(allRead bool) step {
	switch {
	case s.stopping:
		return nothing
	case s.current != nil:
		if s.desired != nil && s.desired.UID == s.current.UID {
			return nothing
		}
		return stop
	case s.left != nil && s.desired == nil && !allRead:
		return nothing
	case s.left != nil && s.desired != nil && s.desired.UID == s.left.UID:
		return adopt
	case s.left != nil:
		return remove
	case s.desired != nil:
		return start
	}
	return nothing
}

// holds returns the UID of the pod that has the name now; "" if none has.
func (s *slot) holds() types.UID {
	switch {
	case s.current != nil:
		return s.current.UID
	case s.left != nil:
		return s.left.UID
	}
	return ""
}

// isEmpty reports whether no pod has or wants the name.
func (s *slot) isEmpty() bool { return s.desired == nil && s.holds() == "" }
