// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rootdir

import (
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Layout names the files of pods below the agent's root directory:
//
//	pods/<uid>/                          all files of a pod but its logs
//	pods/<uid>/volumes/                  owned by package volume, as are the next two
//	pods/<uid>/volumeDevices/
//	pods/<uid>/volume-subpaths/
//	pods/<uid>/etc-hosts                 mounted at /etc/hosts
//	pods/<uid>/resources.json            the resources allocated to the pod
//	pods/<uid>/eviction.json             why the node evicts the pod, if it does
//	pods/<uid>/userns                    the IDs of its user namespace: owned by package userns
//	pods/<uid>/containers/<name>/<n>     the termination log of the n-th run
//
// and what is not a pod's own:
//
//	plugins/kubernetes.io/               volumes that pods share: owned by package volume
//	plugins/<driver>/                    conventionally, the socket of a driver
//	plugins_registry/                    the registration sockets of drivers
//	pod-resources/kubelet.sock           the socket of the PodResources API
//	pods-api/pods-api.sock               the socket of the Pods API
//	device-plugins/                      the sockets of device plugins: owned by package deviceplugin
//	assigned/<uid>.json                  CPUs, memory and devices of a pod: owned by package assign
//	checkpoints/                         checkpoints of containers, which users remove
//	claims/<uid>.json                    prepared ResourceClaims: owned by package dra
//	image_manager/pulled/                which credentials pulled an image: owned by package image, as is the next
//	image_manager/pulling/               images whose pull has not ended
//	image-usage.json                     when images were used: owned by package garbage
//	pod-logs                             a link to the directory of logs
//
// Logs are where log shippers expect them:
//
//	<Logs>/<namespace>_<name>_<uid>/<container>/<n>.log
//	<Links>/<name>_<namespace>_<container>-<id>.log
type Layout struct {
	Root string
	// Logs is the directory of the logs of pods, by default logs/ below Root.
	Logs string
	// Links is the directory of links to the logs of containers. If it is empty, none are made.
	Links string
}

// PodsDir holds one directory for each pod, named by its UID.
func (l Layout) PodsDir() string { return filepath.Join(l.Root, "pods") }

// PodDir holds all files of one pod but its logs.
func (l Layout) PodDir(uid types.UID) string { return filepath.Join(l.PodsDir(), string(uid)) }

// VolumesDir holds a pod's volumes. Package volume owns its content.
func (l Layout) VolumesDir(uid types.UID) string { return filepath.Join(l.PodDir(uid), "volumes") }

// VolumeDevicesDir holds a pod's block devices. Package volume owns its content.
func (l Layout) VolumeDevicesDir(uid types.UID) string {
	return filepath.Join(l.PodDir(uid), "volumeDevices")
}

// SubpathsDir holds the mounts of parts of a pod's volumes. Package volume owns its content.
func (l Layout) SubpathsDir(uid types.UID) string {
	return filepath.Join(l.PodDir(uid), "volume-subpaths")
}

// SharedVolumesDir holds what the pods of a node share of a kind of volume, such as "csi".
func (l Layout) SharedVolumesDir(kind string) string {
	return filepath.Join(l.Root, "plugins", "kubernetes.io", kind)
}

// RegistryDir is the directory of the sockets with which drivers register.
func (l Layout) RegistryDir() string { return filepath.Join(l.Root, "plugins_registry") }

// PodResourcesSocket is the socket of the PodResources API.
func (l Layout) PodResourcesSocket() string {
	return filepath.Join(l.Root, "pod-resources", "kubelet.sock")
}

// PodsAPISocket is the socket of the Pods API.
func (l Layout) PodsAPISocket() string { return filepath.Join(l.Root, "pods-api", "pods-api.sock") }

// DevicePluginsDir has the socket with which device plugins register, and their own. Package deviceplugin owns its
// content.
func (l Layout) DevicePluginsDir() string { return filepath.Join(l.Root, "device-plugins") }

// AssignedDir holds one record for each pod with CPUs, memory or devices of its own. Package assign owns its content.
func (l Layout) AssignedDir() string { return filepath.Join(l.Root, "assigned") }

// ClaimsDir holds one record for each ResourceClaim. Package dra owns its content.
func (l Layout) ClaimsDir() string { return filepath.Join(l.Root, "claims") }

// ImageUsageFile keeps when images were used.
func (l Layout) ImageUsageFile() string { return filepath.Join(l.Root, "image-usage.json") }

// CheckpointsDir holds the checkpoints of containers.
func (l Layout) CheckpointsDir() string { return filepath.Join(l.Root, "checkpoints") }

// HostsFile is the pod's /etc/hosts.
func (l Layout) HostsFile(uid types.UID) string { return filepath.Join(l.PodDir(uid), "etc-hosts") }

// AllocationFile keeps the resources allocated to the pod.
func (l Layout) AllocationFile(uid types.UID) string {
	return filepath.Join(l.PodDir(uid), "resources.json")
}

// TerminationLogsDir has the termination logs of a pod, in a directory for each container.
func (l Layout) TerminationLogsDir(uid types.UID) string {
	return filepath.Join(l.PodDir(uid), "containers")
}

// EvictionFile keeps why the node evicts the pod.
func (l Layout) EvictionFile(uid types.UID) string {
	return filepath.Join(l.PodDir(uid), "eviction.json")
}

// UserNamespaceFile has the host's IDs that the pod's user namespace maps. Package userns owns it.
func (l Layout) UserNamespaceFile(uid types.UID) string {
	return filepath.Join(l.PodDir(uid), "userns")
}

// TerminationLog is the file mounted at the container's terminationMessagePath.
func (l Layout) TerminationLog(uid types.UID, container string, attempt uint32) string {
	return filepath.Join(l.TerminationLogsDir(uid), container, strconv.FormatUint(uint64(attempt), 10))
}
