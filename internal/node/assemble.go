// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/informers"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/cgroup"
	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/csi"
	"github.com/kindred-project/kindred/internal/node/dra"
	"github.com/kindred-project/kindred/internal/node/environment"
	"github.com/kindred-project/kindred/internal/node/image"
	"github.com/kindred-project/kindred/internal/node/logs"
	"github.com/kindred-project/kindred/internal/node/objects"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/probe"
	"github.com/kindred-project/kindred/internal/node/volume"
)

// assemble builds the parts that pod workers use, and those that remove what they leave.
func (a *Agent) assemble(ctx context.Context, factory informers.SharedInformerFactory) *pod.Parts {
	o := a.options
	layout := o.layout()
	allocatable := func() v1.ResourceList { return a.registration.current().Status.Allocatable }
	handlers := a.handlers
	drivers := factory.Storage().V1().CSIDrivers()
	var volumes *volume.Manager
	store := objects.New(ctx, o.Client, func(uid types.UID) { volumes.Changed(uid) })
	volumes = volume.New(volume.Options{
		Layout: layout, Client: o.Client, Objects: store, Clock: o.Clock, Allocatable: allocatable,
		RecursiveReadOnly: func(p *v1.Pod) bool { return handlers.recursiveReadOnly(ctx, p) },
		NoImages:          noImageVolumes(a.registration.reporter.version),
		NodeLabels:        func() map[string]string { return a.registration.current().Labels },
		LoopFiles:         o.LoopFiles,
		Observe:           a.metrics.VolumeOperation,
		Failed: func(p *v1.Pod, err error) {
			for _, failure := range pod.VolumeErrors(err) {
				o.Recorder.Event(pod.Reference(p), v1.EventTypeWarning, failure.Reason, failure.Message)
			}
		},
		Event: func(object *v1.ObjectReference, eventType, reason, message string) {
			o.Recorder.Event(object, eventType, reason, message)
		},
		CSI: &csi.Options{
			Layout: layout, Client: o.Client, Clock: o.Clock, Node: a.registration.current,
			InUseChanged: a.registration.check,
			Intercept:    a.metrics.CSICalls,
			Drivers:      drivers.Lister(), Synced: drivers.Informer().HasSynced,
		},
	})
	a.volumes, a.registration.reporter.inUse = volumes, volumes.CSI().InUse
	go volumes.Run(ctx)
	a.claims = dra.New(ctx, dra.Options{
		Store: a.records, Client: o.Client, Node: o.Name, Clock: o.Clock, Changed: a.pods.Wake,
		NoCDI: noCDI(a.registration.reporter.version), Intercept: a.metrics.DRACalls,
	})
	rotator := logs.NewRotator(logs.RotatorOptions{
		Reopen: a.runtime.ReopenContainerLog, Clock: o.Clock,
		MaxSize: o.Config.LogMaxSize(), MaxFiles: int(*o.Config.ContainerLogMaxFiles), Period: o.Config.ContainerLogMonitorInterval.Duration,
	})
	go rotator.Run(ctx)
	a.leftPods = a.podGarbage(volumes)
	images := image.New(ctx, image.Options{
		Service: a.images, Secrets: store, Recorder: o.Recorder, Clock: o.Clock, Limits: o.pullLimits(),
		RecordsDir: filepath.Join(o.RootDir, "image_manager"), Verification: o.verification, Used: func(id string) { a.unusedImages.Used(id) }, Pulled: a.metrics.ImagePulled, Ensured: a.metrics.ImageEnsured,
	})
	a.unusedImages = a.imageGarbage(images)
	services := factory.Core().V1().Services()
	return &pod.Parts{
		Host: criconfig.Host{
			Layout: layout, Owner: o.Owner, IPs: o.IPs, Memory: a.registration.reporter.machine.memory, Quota: o.quota(),
			KillTogether:   cgroup.IsV2() && (o.Config.SingleProcessOOMKill == nil || !*o.Config.SingleProcessOOMKill),
			SeccompDefault: *o.Config.SeccompDefault, Swap: a.swap, MemoryQoS: a.memoryQoS, PageSizes: a.limitedPageSizes(),
			DNS: criconfig.DNS{Servers: o.ClusterDNS, Domain: o.Config.ClusterDomain, ResolvConf: o.ResolvConf},
		},
		Runtime:     a.view,
		RuntimeName: a.registration.reporter.version.RuntimeName,
		Clock:       o.Clock,
		BootID:      a.registration.reporter.machine.bootID,
		Recorder:    o.Recorder,
		Status:      routedStatus{static: a.static, api: podStatus{client: o.Client}},
		Observer:    a.metrics,
		Volumes:     volumes,
		Claims:      countedClaims{a.claims, a.metrics, o.Clock},
		Resources:   a.assigned,
		Environment: environment.New(environment.Options{
			Objects: store, Services: services.Lister(), ServicesSynced: services.Informer().HasSynced,
			API: o.API, Allocatable: allocatable, OpenFile: volumes.OpenFile,
		}),
		Images:            images,
		Probes:            probe.New(ctx, probe.Options{Runtime: a.runtime, Recorder: o.Recorder, Clock: o.Clock, Observer: a.metrics}),
		Watcher:           a.podWatcher(),
		Logs:              rotator,
		Handlers:          pod.Hooks{Runtime: a.runtime, Clock: o.Clock, Recorder: o.Recorder, Observer: a.metrics},
		Cgroups:           a.cgroups,
		RuntimeHandler:    handlers.of,
		RecursiveReadOnly: func(p *v1.Pod) bool { return handlers.recursiveReadOnly(ctx, p) },
		Users:             a.users,
		MaxRestartDelay:   o.maxRestartDelay(),
		AwaitPod:          o.AwaitPod,
		LimitBandwidth:    o.LimitBandwidth,
		AnnouncePod:       o.AnnouncePod,
	}
}

// limitedPageSizes returns the sizes of huge pages that cgroups can limit.
func (a *Agent) limitedPageSizes() []int64 {
	if !cgroup.HasController("hugetlb") {
		return nil
	}
	return a.registration.reporter.machine.pageSizes()
}

// noImageVolumes returns why a runtime cannot mount images (KEP-4639), or nil: containerd before 2.1 takes
// such a mount for a bind mount without a source.
func noImageVolumes(runtime *runtimeapi.VersionResponse) error {
	if !isContainerdBefore(runtime, 2, 1) {
		return nil
	}
	return fmt.Errorf("containerd %s cannot mount images as volumes: containerd 2.1 is required", runtime.RuntimeVersion)
}

// noCDI returns why a runtime cannot give CDI devices to containers (KEP-4009), or nil: containerd before 1.7
// ignores them.
func noCDI(runtime *runtimeapi.VersionResponse) error {
	if !isContainerdBefore(runtime, 1, 7) {
		return nil
	}
	return fmt.Errorf("containerd %s cannot give CDI devices to containers: containerd 1.7 is required", runtime.RuntimeVersion)
}

// isContainerdBefore reports whether the runtime is containerd, of an older version. CRI does not tell what a
// runtime can do.
func isContainerdBefore(runtime *runtimeapi.VersionResponse, major, minor uint) bool {
	v, err := version.ParseGeneric(runtime.RuntimeVersion)
	return runtime.RuntimeName == "containerd" && err == nil && v.LessThan(version.MajorMinor(major, minor))
}
