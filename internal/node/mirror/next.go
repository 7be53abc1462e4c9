// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/source"
)

// state is what is known of one full name.
type state struct {
	// static is the static pod with its newest status; nil if there is none.
	static *v1.Pod
	// mirror is the mirror pod in the API; nil if there is none.
	mirror *v1.Pod
}

// step is a request to the API.
type step int

const (
	nothing step = iota
	create
	remove
	write // the status
)

// next returns the next request. A mirror pod without static pod is removed only if all static pods are known.
func (s state) next(allKnown bool) step {
	switch {
	case s.static == nil && s.mirror != nil && allKnown:
		return remove
	case s.static == nil:
		return nothing
	case s.mirror == nil && s.static.DeletionTimestamp != nil:
		return nothing
	case s.mirror == nil:
		return create
	case s.mirror.DeletionTimestamp != nil || !isMirrorOf(s.mirror, s.static) || s.startedAgain():
		return remove // and create it again once the API no longer has it
	}
	return write
}

// startedAgain reports whether the static pod runs although its mirror pod has ended: its manifest was removed and added again.
// The API does not let all containers that have ended run again.
func (s state) startedAgain() bool {
	return pod.IsOver(s.mirror.Status.Phase) && !pod.IsOver(s.static.Status.Phase)
}

// isMirrorOf reports whether a mirror pod was made of this version of the static pod.
func isMirrorOf(mirror, static *v1.Pod) bool {
	return mirror.Annotations[source.MirrorAnnotation] == static.Annotations[source.HashAnnotation]
}
