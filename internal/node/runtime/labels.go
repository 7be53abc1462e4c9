// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"strconv"
	"time"
)

// The labels that identify sandboxes and containers. The io.kubernetes ones are the kubelet's, which
// crictl and log collectors read.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	// LabelOwner names the node of a sandbox or container, so that several nodes can share one
	// runtime.
	LabelOwner = "kindred.dev/cluster"
)

// The annotations of a container. They let an agent describe and stop a container whose pod it never
// saw.
const (
	AnnotationHash             = "io.kubernetes.container.hash"
	AnnotationRestartCount     = "io.kubernetes.container.restartCount"
	AnnotationTerminationPath  = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationRule  = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationTerminationGrace = "io.kubernetes.pod.terminationGracePeriod"
	// AnnotationBackOff is the delay between the end of this run and the next run. Stored with
	// the container, it survives the agent.
	AnnotationBackOff = "kindred.dev/back-off"
	// AnnotationSize is the CPU and memory that the run was created with, as criconfig.Size
	// formats them.
	AnnotationSize = "kindred.dev/size"
	// AnnotationLife is the life of the pod's containers in which the run was created (KEP-5532); 0 if it is missing.
	AnnotationLife = "kindred.dev/life"
	// AnnotationMessageFile is the file on the node that holds the termination message.
	AnnotationMessageFile = "kindred.dev/termination-message-file"
)

func backOff(annotations map[string]string) time.Duration {
	d, err := time.ParseDuration(annotations[AnnotationBackOff])
	if err != nil {
		return 0
	}
	return d
}

func attempt(annotations map[string]string, fallback uint32) uint32 {
	n, err := strconv.ParseUint(annotations[AnnotationRestartCount], 10, 32)
	if err != nil {
		return fallback
	}
	return uint32(n)
}

func life(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[AnnotationLife])
	if err != nil {
		return 0
	}
	return n
}
