// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/eviction"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/rootdir"
	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/usage"
)

// statBlock is the unit of st_blocks.
const statBlock = 512

// VolumeUsage returns what the volumes of a pod take that have the pod's lifetime, by name. A volume that has not been
// measured yet is missing.
func (a *Agent) VolumeUsage(p *v1.Pod) map[string]usage.Used {
	used := map[string]usage.Used{}
	if a.volumes == nil {
		return used
	}
	for name, path := range a.volumes.LocalPaths(p) {
		if u, ok := a.usage.Of(path); ok {
			used[name] = u
		}
	}
	return used
}

// LogUsage returns what the logs of a pod's container take, or those of all of its containers, also of former ones, if
// container is "". It returns false if they have not been measured yet.
func (a *Agent) LogUsage(p *v1.Pod, container string) (usage.Used, bool) {
	return a.usage.Of(filepath.Join(a.layout().PodLogsDir(p.Namespace, p.Name, p.UID), container))
}

func (a *Agent) layout() rootdir.Layout { return a.options.layout() }

// localDirs returns the directories of pods that are measured.
func (a *Agent) localDirs() []string {
	var dirs []string
	for _, p := range a.pods.Pods() {
		logs := a.layout().PodLogsDir(p.Namespace, p.Name, p.UID)
		dirs = append(dirs, logs)
		for _, name := range containerNames(p) {
			dirs = append(dirs, filepath.Join(logs, name))
		}
		if pod.IsOver(p.Status.Phase) {
			continue // its volumes are gone
		}
		for _, path := range a.volumes.LocalPaths(p) {
			dirs = append(dirs, path)
		}
	}
	return dirs
}

func containerNames(p *v1.Pod) (names []string) {
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// Usages implements eviction.Node. What the runtime or the kernel cannot tell is missing.
func (p pressureNode) Usages(ctx context.Context, pods []*v1.Pod) eviction.Usages {
	running := p.containerUsages(ctx)
	usages := eviction.Usages{}
	for _, measured := range pods {
		used := eviction.Usage{Containers: running[measured.UID], Volumes: map[string]eviction.Disk{}}
		if own, err := p.cgroups.Usage(measured); err == nil {
			used.Memory = new(int64(own.Memory))
		} else {
			used.Memory = sumOfMemory(used.Containers)
		}
		if count, err := p.cgroups.Processes(p.cgroups.Path(measured)); err == nil {
			used.Processes = new(int64(count))
		}
		for name, volume := range p.VolumeUsage(measured) {
			used.Volumes[name] = eviction.Disk{Bytes: volume.Bytes, Inodes: volume.Inodes}
		}
		p.addLogs(measured, &used)
		if used.Memory != nil || len(used.Volumes) > 0 {
			usages[measured.UID] = used
		}
	}
	return usages
}

// addLogs adds the logs of running containers to them, and other logs and /etc/hosts to the pod.
func (p pressureNode) addLogs(measured *v1.Pod, used *eviction.Usage) {
	if all, ok := p.LogUsage(measured, ""); ok {
		used.Other = eviction.Disk{Bytes: all.Bytes, Inodes: all.Inodes}
	}
	for name, container := range used.Containers {
		logs, ok := p.LogUsage(measured, name)
		if !ok {
			continue
		}
		container.Logs = &eviction.Disk{Bytes: logs.Bytes, Inodes: logs.Inodes}
		used.Containers[name] = container
		used.Other.Bytes = max(used.Other.Bytes-logs.Bytes, 0)
		used.Other.Inodes = max(used.Other.Inodes-logs.Inodes, 0)
	}
	var hosts unix.Stat_t
	if unix.Lstat(p.layout().HostsFile(measured.UID), &hosts) == nil {
		used.Other.Bytes += hosts.Blocks * statBlock
		used.Other.Inodes++
	}
}

// containerUsages returns the memory and the writable layers of running containers, by pod and name.
func (p pressureNode) containerUsages(ctx context.Context) map[types.UID]map[string]eviction.Container {
	ctx, cancel := context.WithTimeout(ctx, usagesLimit)
	defer cancel()
	list, err := p.runtime.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{runtime.LabelOwner: p.options.Owner}})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot measure containers")
	}
	usages := map[types.UID]map[string]eviction.Container{}
	for _, s := range list {
		memory := s.GetMemory().GetWorkingSetBytes()
		if memory == nil {
			continue // it has exited
		}
		labels := s.GetAttributes().GetLabels()
		uid := types.UID(labels[runtime.LabelPodUID])
		if usages[uid] == nil {
			usages[uid] = map[string]eviction.Container{}
		}
		c := eviction.Container{Memory: new(int64(memory.GetValue()))}
		if layer := s.GetWritableLayer(); layer.GetUsedBytes() != nil {
			c.Layer = &eviction.Disk{Bytes: int64(layer.GetUsedBytes().GetValue()), Inodes: int64(layer.GetInodesUsed().GetValue())}
		}
		usages[uid][labels[runtime.LabelContainerName]] = c
	}
	return usages
}

func sumOfMemory(containers map[string]eviction.Container) *int64 {
	if len(containers) == 0 {
		return nil
	}
	sum := int64(0)
	for _, c := range containers {
		if c.Memory != nil {
			sum += *c.Memory
		}
	}
	return &sum
}
