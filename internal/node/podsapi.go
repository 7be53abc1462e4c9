// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/podsapi"
)

// newPodsAPI returns the server of the Pods API, or nil if its feature gate is disabled.
func (a *Agent) newPodsAPI() *podsapi.Server {
	if !config.PodsAPI(&a.options.Config.KubeletConfiguration) {
		return nil
	}
	return &podsapi.Server{
		Source: a.pods, Ready: a.allPodsKnown, Clock: a.options.Clock,
		Requested: a.metrics.PodsRequest, Dropped: a.metrics.PodEventDropped,
	}
}

// runPodsAPI serves the Pods API, if it is enabled, until ctx ends.
func (a *Agent) runPodsAPI(ctx context.Context, running *sync.WaitGroup) {
	if a.podsAPI != nil {
		running.Go(func() { a.podsAPI.Run(ctx, a.options.layout().PodsAPISocket()) })
	}
}

// podWatcher returns what gets the changes of pods; nil if nothing does.
func (a *Agent) podWatcher() pod.Watcher {
	if a.podsAPI == nil {
		return nil
	}
	return a.podsAPI
}

// podRemoved is called when nothing of a pod is left on the node. A static pod may start again with the same UID, so that
// watches get its end first.
func (a *Agent) podRemoved(uid types.UID) {
	if a.podsAPI != nil {
		a.podsAPI.PodEnded(uid)
	}
	a.static.Removed(uid)
}

// allPodsKnown reports whether the pods of the API and of all manifests are known.
func (a *Agent) allPodsKnown() bool {
	if a.exists.Load() == nil {
		return false
	}
	select {
	case <-a.static.Read():
		return true
	default:
		return false
	}
}
