// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Layout says where a pod's files are below the agent's root directory:
//
//	pods/<uid>/                          everything of a pod but its logs
//	pods/<uid>/volumes/                  owned by package volume
//	pods/<uid>/etc-hosts                 mounted at /etc/hosts
//	pods/<uid>/resources.json            what is allocated to the pod
//	pods/<uid>/containers/<name>/<n>     the termination log of the n-th run
//	logs/<namespace>_<name>_<uid>/<container>/<n>.log
type Layout struct {
	Root string
}

// PodsDir holds one directory a pod, named by its UID.
func (l Layout) PodsDir() string { return filepath.Join(l.Root, "pods") }

// PodDir holds everything of one pod but its logs.
func (l Layout) PodDir(uid types.UID) string { return filepath.Join(l.PodsDir(), string(uid)) }

// VolumesDir holds a pod's volumes; package volume decides what is in it.
func (l Layout) VolumesDir(uid types.UID) string { return filepath.Join(l.PodDir(uid), "volumes") }

// HostsFile is the pod's /etc/hosts.
func (l Layout) HostsFile(uid types.UID) string { return filepath.Join(l.PodDir(uid), "etc-hosts") }

// AllocationFile keeps what is allocated to the pod.
func (l Layout) AllocationFile(uid types.UID) string {
	return filepath.Join(l.PodDir(uid), "resources.json")
}

// TerminationLog is the file mounted at the container's terminationMessagePath.
func (l Layout) TerminationLog(uid types.UID, container string, attempt uint32) string {
	return filepath.Join(l.PodDir(uid), "containers", container, strconv.FormatUint(uint64(attempt), 10))
}

// LogsDir holds one directory of logs a pod.
func (l Layout) LogsDir() string { return filepath.Join(l.Root, "logs") }

// PodLogsDir is the sandbox's log directory.
func (l Layout) PodLogsDir(namespace, name string, uid types.UID) string {
	return filepath.Join(l.LogsDir(), namespace+"_"+name+"_"+string(uid))
}

// ContainerLog is the log's path relative to PodLogsDir, as CRI wants it.
func (l Layout) ContainerLog(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// ContainerReference is the object that events about one container are
// recorded on: the pod, with the container's field path.
func ContainerReference(pod *v1.Pod, container string) *v1.ObjectReference {
	ref := Reference(pod)
	ref.FieldPath = fieldPath(pod, container)
	return ref
}

// Reference is the object that events about the whole pod are recorded on.
func Reference(pod *v1.Pod) *v1.ObjectReference {
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1",
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion,
	}
}

func fieldPath(pod *v1.Pod, container string) string {
	if container == "" {
		return "" // about the whole pod
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			return "spec.containers{" + container + "}"
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	return "spec.ephemeralContainers{" + container + "}"
}
