// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"strconv"
	"time"
)

// The labels by which sandboxes and containers are found again. The
// io.kubernetes names are the kubelet's, which crictl and log collectors know.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	// LabelOwner says which node's agent a sandbox or container belongs to, so that
	// several can share one runtime.
	LabelOwner = "kindred.dev/cluster"
)

// The annotations a container carries, so that an agent which never saw the
// container's pod can still describe and stop it.
const (
	AnnotationHash             = "io.kubernetes.container.hash"
	AnnotationRestartCount     = "io.kubernetes.container.restartCount"
	AnnotationTerminationPath  = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationRule  = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationTerminationGrace = "io.kubernetes.pod.terminationGracePeriod"
	// AnnotationBackOff is how long to wait, after this run of the container ends, before
	// the next begins. Kept with the container, it outlives the agent.
	AnnotationBackOff = "kindred.dev/back-off"
	// AnnotationSize is the CPU and memory the run was created with.
	AnnotationSize = "kindred.dev/size"
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
