// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Observer counts what workers do. *metrics.Metrics implements it.
type Observer interface {
	// PodSynced counts a round of a worker.
	PodSynced(operation string, took time.Duration)
	// PodStarted counts a pod that runs.
	PodStarted(sinceSeen, sinceCreated time.Duration)
	// PodStartedSLI counts such a pod without the time for images and init containers, unless it has data of its own.
	PodStartedSLI(took time.Duration, hostNetwork bool)
	// WorkerStarted counts a worker of a pod with a number of containers.
	WorkerStarted(sinceSeen time.Duration, containers int)
	// StatusWritten counts a status that the API has.
	StatusWritten(sinceChange time.Duration)
	// OrphanFound counts a pod that only the runtime has.
	OrphanFound()
	// ImageVolumes counts the image volumes of a container; err is why it cannot get them.
	ImageVolumes(count int, err error)
	// ContainerStart counts the start of a container; reason is why it failed.
	ContainerStart(containerType, reason string)
	// ContainerTerminated counts the end of a container.
	ContainerTerminated(containerType string, exitCode int32, reason string)
	// PodResized counts an attempt to give a pod's containers and cgroup their allocated size.
	PodResized(took time.Duration, err error)
	// PodRemoved drops what is counted for one pod.
	PodRemoved(pod *v1.Pod)
}

// The types of containers in metrics.
const (
	typeContainer = "container"
	typeInit      = "init_container"
	typeEphemeral = "ephemeral_container"
)

// observeRound counts a round.
func (w *Worker) observeRound(begin time.Time, deleted bool) {
	if w.parts.Observer == nil {
		return
	}
	operation := "sync"
	switch {
	case w.rounds == 0:
		operation = "create"
	case deleted || w.stopping:
		operation = "kill"
	}
	w.rounds++
	w.parts.Observer.PodSynced(operation, w.parts.Clock.Since(begin))
}

// observeStatus counts what a new status tells: that the pod runs, and which containers have ended.
func (w *Worker) observeStatus(pod *v1.Pod, before, after *v1.PodStatus) {
	observer := w.parts.Observer
	if observer == nil {
		return
	}
	if before.Phase == v1.PodPending && after.Phase == v1.PodRunning {
		w.observeRunning(pod, after)
	}
	for _, ended := range terminations(before, after) {
		observer.ContainerTerminated(ended.containerType, ended.state.ExitCode, ended.state.Reason)
	}
}

// observeResize counts a resize that began at a time.
func (w *Worker) observeResize(begin time.Time, err error) {
	if w.parts.Observer != nil {
		w.parts.Observer.PodResized(w.parts.Clock.Since(begin), err)
	}
}

// observeRemoved drops what is counted for the pod.
func (w *Worker) observeRemoved() {
	if w.parts.Observer != nil {
		w.parts.Observer.PodRemoved(w.Pod())
	}
}

// observeStart counts the start of a container.
func (w *Worker) observeStart(t task, err error) {
	if w.parts.Observer != nil {
		w.parts.Observer.ContainerStart(metricTypeOf(t.pod, t.Container), startReason(err))
	}
}

// observeImageVolumes counts image volumes of a container.
func (w *Worker) observeImageVolumes(count int, err error) {
	if w.parts.Observer != nil {
		w.parts.Observer.ImageVolumes(count, err)
	}
}

// startReason returns the reason for which a container could not be started; empty if it was.
func startReason(err error) string {
	var image *ImageError
	var start *startError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &image):
		return image.Reason
	case errors.As(err, &start):
		return start.reason
	}
	return reasonCreateConfig
}

func metricTypeOf(pod *v1.Pod, name string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return typeInit
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return typeEphemeral
		}
	}
	return typeContainer
}

// termination is the end of a container.
type termination struct {
	containerType string
	state         *v1.ContainerStateTerminated
}

// terminations returns the containers that are terminated in the second status, and were not in the first.
func terminations(before, after *v1.PodStatus) []termination {
	var all []termination
	add := func(containerType string, before, after []v1.ContainerStatus) {
		ended := map[string]bool{}
		for i := range before {
			ended[before[i].Name] = before[i].State.Terminated != nil
		}
		for i := range after {
			if state := after[i].State.Terminated; state != nil && !ended[after[i].Name] {
				all = append(all, termination{containerType, state})
			}
		}
	}
	add(typeInit, before.InitContainerStatuses, after.InitContainerStatuses)
	add(typeContainer, before.ContainerStatuses, after.ContainerStatuses)
	add(typeEphemeral, before.EphemeralContainerStatuses, after.EphemeralContainerStatuses)
	return all
}
