// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/workers"
)

// lookup finds pods and containers for the node's HTTP server. It implements pod.Lookup.
type lookup struct {
	pods    *workers.Set
	runtime *runtime.Runtime
}

// Pod implements pod.Lookup.
func (l lookup) Pod(namespace, name string, uid types.UID) (*v1.Pod, bool) {
	var found *v1.Pod
	for _, p := range l.pods.Pods() {
		if p.Namespace != namespace || p.Name != name || (uid != "" && p.UID != uid) {
			continue
		}
		// If two pods have the name, the older one is terminating.
		if found == nil || found.CreationTimestamp.Before(&p.CreationTimestamp) {
			found = p
		}
	}
	return found, found != nil
}

// Pods implements pod.Lookup.
func (l lookup) Pods() []*v1.Pod { return l.pods.Pods() }

// Container implements pod.Lookup.
func (l lookup) Container(ctx context.Context, uid types.UID, name string, previous bool) (pod.ContainerInstance, bool) {
	known, err := l.runtime.Known(ctx, uid)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot look up a container", "pod", uid, "container", name)
		return pod.ContainerInstance{}, false
	}
	run, ok := runOf(known.Runs(name), l.status(uid), name, previous)
	if !ok {
		return pod.ContainerInstance{}, false
	}
	return pod.ContainerInstance{ID: run.ID, Running: run.State == runtime.Running, LogPath: run.LogPath}, true
}

func (l lookup) status(uid types.UID) v1.PodStatus {
	for _, p := range l.pods.Pods() {
		if p.UID == uid {
			return p.Status
		}
	}
	return v1.PodStatus{}
}

// runOf chooses from the runs of a container, of which the newest is the first. The previous run is the last one that
// the container's status shows as ended before the present state: during a back-off, that is the newest run.
func runOf(runs []runtime.Container, status v1.PodStatus, name string, previous bool) (runtime.Container, bool) {
	if len(runs) == 0 {
		return runtime.Container{}, false
	}
	if !previous {
		return runs[0], true
	}
	id := previousID(status, name)
	i := slices.IndexFunc(runs, func(run runtime.Container) bool { return run.ID == id })
	if i < 0 {
		return runtime.Container{}, false
	}
	return runs[i], true
}

// previousID returns the runtime's ID of the last run that a container's status shows as ended before its present state; empty
// if there is none.
func previousID(status v1.PodStatus, name string) string {
	for _, list := range [][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			if ended := list[i].LastTerminationState.Terminated; list[i].Name == name && ended != nil {
				_, id, _ := strings.Cut(ended.ContainerID, "://")
				return id
			}
		}
	}
	return ""
}

// Sandbox implements pod.Lookup.
func (l lookup) Sandbox(ctx context.Context, uid types.UID) (string, bool) {
	known, err := l.runtime.Known(ctx, uid)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot look up the sandbox of a pod", "pod", uid)
		return "", false
	}
	sandbox, ok := known.ReadySandbox()
	return sandbox.ID, ok
}
