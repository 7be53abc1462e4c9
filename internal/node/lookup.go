// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
func (l lookup) Container(uid types.UID, name string, previous bool) (pod.ContainerInstance, bool) {
	var runs []runtime.Container
	if last := l.runtime.Last(uid); last != nil {
		runs = last.Runs(name)
	}
	if previous && len(runs) > 0 {
		runs = runs[1:]
	}
	if len(runs) == 0 {
		return pod.ContainerInstance{}, false
	}
	return pod.ContainerInstance{ID: runs[0].ID, Running: runs[0].State == runtime.Running, LogPath: runs[0].LogPath}, true
}

// Sandbox implements pod.Lookup.
func (l lookup) Sandbox(uid types.UID) (string, bool) {
	last := l.runtime.Last(uid)
	if last == nil {
		return "", false
	}
	sandbox, ok := last.ReadySandbox()
	return sandbox.ID, ok
}
