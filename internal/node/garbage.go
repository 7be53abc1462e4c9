// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/garbage"
	"github.com/kindred-project/kindred/internal/node/image"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/volume"
)

// imageGarbage returns the collector of images. images has the records of pulled ones.
func (a *Agent) imageGarbage(images *image.Manager) *garbage.Images {
	o, c := a.options, a.options.Config
	return garbage.NewImages(garbage.ImageOptions{
		Policy: garbage.Policy{
			High: int(*c.ImageGCHighThresholdPercent), Low: int(*c.ImageGCLowThresholdPercent),
			MinAge: c.ImageMinimumGCAge.Duration, MaxAge: c.ImageMaximumGCAge.Duration,
		},
		Images: a.images, Runtime: a.runtime, Clock: o.Clock, Pinned: o.PinnedImages,
		Volumes: noImageVolumes(a.registration.reporter.version) == nil,
		Wanted:  a.wantedImages,
		Prune:   images.PruneRecords,
		Event:   a.nodeEvent,
		Removed: a.metrics.ImageRemoved,
		File:    o.layout().ImageUsageFile(),
	})
}

// podGarbage returns the sweeper of what pods left.
func (a *Agent) podGarbage(volumes *volume.Manager) *garbage.Sweeper {
	return garbage.NewSweeper(garbage.SweepOptions{
		Layout: a.options.layout(), Runtime: a.view, Clock: a.options.Clock,
		Cgroups: a.cgroups, Claims: a.claims.RemoveOrphans, Resources: a.assigned.RemoveOrphans,
		Volumes: func(ctx context.Context, keep func(types.UID) bool) error {
			if err := volumes.RemoveOrphans(ctx, keep); err != nil {
				return err // its files may have the IDs of a pod
			}
			return a.users.ReleaseOrphans(keep)
		},
		Has: a.hasPod, Over: a.isOver, Changed: a.pods.RuntimeChanged, Event: a.nodeEvent,
	})
}

func (a *Agent) nodeEvent(eventType, reason, message string) {
	a.registration.record(eventType, reason, message)
}

// hasPod reports whether the API has bound a pod to the node, the pod is static, or its worker has not returned. It returns true
// for every pod until all pods are known.
func (a *Agent) hasPod(uid types.UID) bool {
	exists := a.exists.Load()
	return exists == nil || (*exists)(uid) || a.pods.Has(uid)
}

// isOver reports whether the node has a pod that is over.
func (a *Agent) isOver(uid types.UID) bool {
	return slices.ContainsFunc(a.pods.Pods(), func(p *v1.Pod) bool { return p.UID == uid && pod.IsOver(p.Status.Phase) })
}

// wantedImages returns the names of the images that pods need, as in their spec and as runtimes list them.
func (a *Agent) wantedImages() []string {
	var names []string
	add := func(name string) { names = append(names, name, image.FullName(name)) }
	for _, p := range a.pods.Pods() {
		if pod.IsOver(p.Status.Phase) {
			continue
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			add(c.Image)
		}
		for i := range p.Spec.EphemeralContainers {
			add(p.Spec.EphemeralContainers[i].Image)
		}
		for _, v := range p.Spec.Volumes {
			if v.Image != nil {
				add(v.Image.Reference)
			}
		}
	}
	return names
}

// reclaimImages removes all images that nothing uses.
func (a *Agent) reclaimImages(ctx context.Context) error { return a.unusedImages.Reclaim(ctx) }

// reclaimContainers removes what the runtime has of pods that are over.
func (a *Agent) reclaimContainers(ctx context.Context) error { return a.leftPods.Reclaim(ctx) }
