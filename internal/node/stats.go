// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/healthz"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/sampler"
	"github.com/kindred-project/kindred/internal/node/source"
	"github.com/kindred-project/kindred/internal/node/usage"
)

// Sampler measures the node.
func (a *Agent) Sampler() *sampler.Sampler { return a.sampler }

// Metrics counts what the agent does.
func (a *Agent) Metrics() *metrics.Metrics { return a.metrics }

// ContainerMetrics serves /metrics/cadvisor.
func (a *Agent) ContainerMetrics() http.Handler {
	m := a.registration.reporter.machine
	return metrics.HandlerFor(a.sampler.Containers(sampler.Machine{
		BootID: m.bootID, MachineID: m.machineID, SystemUUID: m.systemUUID, CPUs: m.cpus, Memory: m.ordinaryMemory(),
		Cores: m.cores, Sockets: m.sockets,
	}))
}

func (a *Agent) newSampler(m machine) *sampler.Sampler {
	layout := a.options.layout()
	return sampler.New(sampler.Options{
		Node: a.options.Name, RootDir: a.options.RootDir, Memory: m.ordinaryMemory(), Clock: a.options.Clock,
		Pods: a.sampledPods, Cgroups: a.cgroups, FromRuntime: a.view.Stats, Runtime: a.runtime, Images: a.images,
		Filter:  &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{runtime.LabelOwner: a.options.Owner}},
		Volumes: a.sampledVolumes,
		Logs: func(p *v1.Pod, container string) string {
			return filepath.Dir(filepath.Join(layout.PodLogsDir(p.Namespace, p.Name, p.UID), layout.ContainerLog(container, 0)))
		},
		Known:      func(dir string) (usage.Used, bool) { return a.usage.Of(dir) }, // the meter is created later
		DiskPeriod: a.options.Config.VolumeStatsAggPeriod.Duration,
	})
}

// sampledPods returns the pods of the node with their running containers.
func (a *Agent) sampledPods() []sampler.Pod {
	if a.pods == nil {
		return nil
	}
	var pods []sampler.Pod
	for _, p := range a.pods.Pods() {
		pod, last := sampler.Pod{Pod: p}, a.view.Last(p.UID)
		if last == nil {
			continue
		}
		if sandbox, ok := last.ReadySandbox(); ok {
			pod.Sandbox, pod.SandboxCreated = sandbox.ID, sandbox.CreatedAt
		}
		for _, c := range last.Containers {
			if c.State == runtime.Running {
				pod.Containers = append(pod.Containers, sampler.Container{
					Name: c.Name, ID: c.ID, Image: c.Image, Created: c.CreatedAt, Started: c.StartedAt, Attempt: c.Attempt,
				})
			}
		}
		pods = append(pods, pod)
	}
	return pods
}

func (a *Agent) sampledVolumes(uid types.UID) []sampler.Volume {
	if a.volumes == nil {
		return nil
	}
	var volumes []sampler.Volume
	for _, v := range a.volumes.Prepared(uid) {
		volumes = append(volumes, sampler.Volume{Name: v.Name, Path: v.Path, Claim: v.Claim, Files: v.Files, Local: v.Local})
	}
	return volumes
}

// RunningPods returns the pods that the runtime runs, as far as their labels tell.
func (a *Agent) RunningPods(ctx context.Context) ([]*v1.Pod, error) {
	listed, err := a.view.List(ctx)
	if err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(listed)) {
		seen := listed[uid]
		if _, running := seen.ReadySandbox(); !running {
			continue
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: seen.Namespace, Name: seen.Name, UID: uid}, Spec: v1.PodSpec{NodeName: a.options.Name}}
		for _, c := range seen.Containers {
			if c.State == runtime.Running {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
			}
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// state returns what is the case on the node, for its metrics.
func (a *Agent) state() metrics.State {
	s := metrics.State{Containers: map[string]int{}, WantedVolumes: map[string]int{}, MountedVolumes: map[string]int{}, Now: a.options.Clock.Now()}
	s.PendingResizes = map[metrics.PendingResize]int{}
	if a.options.ServerCertificate != nil {
		s.ServerCertificate = a.options.ServerCertificate()
	}
	for _, p := range a.pods.Pods() {
		static := 0
		if source.IsStatic(p) {
			static = 1
			s.MirrorPods++
		}
		s.DesiredPods[static]++
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			s.ActivePods[static]++
			if a.volumes != nil {
				a.volumes.Count(p, s.WantedVolumes, s.MountedVolumes)
			}
		}
		countResizes(&s, p)
		s.EphemeralContainers += len(p.Spec.EphemeralContainers)
		last := a.view.Last(p.UID)
		if last == nil {
			continue
		}
		if _, running := last.ReadySandbox(); running {
			s.RunningPods++
		}
		for _, c := range last.Containers {
			s.Containers[c.State.String()]++
		}
	}
	s.Volumes, s.Logs = a.sampler.Volumes()
	s.WorkingPods = workingPods(a.pods.Working())
	s.SharedCPUs, s.ExclusiveCPUs = a.assigned.CPUs()
	s.ExclusiveCPUsOf = a.assigned.CPUsOfNodes()
	if a.volumes != nil {
		s.PodCertificates = podCertificates(a.volumes.Certificates())
	}
	s.Claims = a.records.InUse()
	s.ProtectedMin, s.ProtectedLow = a.cgroups.Protected()
	return s
}

// Health returns the checks of /healthz.
func (a *Agent) Health() []healthz.HealthChecker {
	return []healthz.HealthChecker{healthz.PingHealthz, healthz.LogHealthz, healthz.NamedCheck("syncloop", func(*http.Request) error {
		return a.loop.check(a.options.Clock.Now())
	})}
}

// loopLimit is the time after which a loop that does not compare the API and the runtime is unhealthy.
const loopLimit = 5 * time.Minute

// loop notes when the agent last compared the API and the runtime.
type loop struct {
	mu   sync.Mutex
	last time.Time
}

// entered notes a round, and returns the time since the one before.
func (l *loop) entered(now time.Time) (since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() {
		since = now.Sub(l.last)
	}
	l.last = now
	return since
}

func (l *loop) check(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Sub(l.last); !l.last.IsZero() && since > loopLimit {
		return fmt.Errorf("the pods of the API and the runtime were last compared %v ago", since.Truncate(time.Second))
	}
	return nil
}
