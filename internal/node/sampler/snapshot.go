// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/cgroup"
	"github.com/kindred-project/kindred/internal/node/stats"
)

// Measured is what a cgroup uses.
type Measured struct {
	cgroup.Sample
	// Cgroup is its path; of a container that the runtime measures, it is the container's ID.
	Cgroup string
	Time   time.Time
	// NanoCores is the CPU time per second; nil if there is no earlier sample.
	NanoCores *uint64
	// Whole is set if the sample has more than the CPU time and the working set.
	Whole bool
}

// Snapshot is what a node and its pods use at one time.
type Snapshot struct {
	Time time.Time
	// Node and AllPods are nil if they cannot be measured.
	Node, AllPods *Measured
	// Own is the process of the agent; nil if it cannot be measured.
	Own  *Measured
	Pods []PodSnapshot
	// Err is why the snapshot is incomplete.
	Err error
}

// PodSnapshot is what a pod uses.
type PodSnapshot struct {
	Pod
	// Usage is nil if the pod has no cgroup.
	Usage      *Measured
	Processes  *uint64
	Interfaces []Interface
	// Sandbox is the sandbox's own use.
	SandboxUsage *Measured
	Containers   []ContainerSnapshot
}

// ContainerSnapshot is what a container uses.
type ContainerSnapshot struct {
	Container
	*Measured
}

// each calls f with everything that was measured.
func (s *Snapshot) each(f func(*Measured)) {
	visit := func(m *Measured) {
		if m != nil {
			f(m)
		}
	}
	visit(s.Node)
	visit(s.AllPods)
	visit(s.Own)
	for i := range s.Pods {
		visit(s.Pods[i].Usage)
		visit(s.Pods[i].SandboxUsage)
		for _, c := range s.Pods[i].Containers {
			visit(c.Measured)
		}
	}
}

// Snapshot measures the node now.
func (s *Sampler) Snapshot(ctx context.Context, network bool) *Snapshot {
	snapshot := s.take(ctx, network)
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot.each(func(m *Measured) { m.NanoCores = s.bases.rate(m.Cgroup, m.CPU, m.Time) })
	return snapshot
}

// take measures everything without rates.
func (s *Sampler) take(ctx context.Context, network bool) *Snapshot {
	o := s.options
	snapshot := &Snapshot{Time: o.Clock.Now()}
	machine, err := cgroup.MachineSample()
	if err == nil {
		snapshot.Node = &Measured{Sample: machine, Cgroup: "/", Time: snapshot.Time, Whole: true}
	}
	snapshot.Own = ownProcess(snapshot.Time)
	if parent := o.Cgroups.Parent(); parent != "" {
		snapshot.AllPods = s.measure(parent)
	}
	var fromRuntime map[string]stats.Container
	if o.Cgroups.Parent() == "" {
		var runtimeErr error
		fromRuntime, runtimeErr = s.fromRuntime(ctx)
		err = errors.Join(err, runtimeErr)
	}
	pods := o.Pods()
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	pods = slices.DeleteFunc(pods, func(p Pod) bool { return len(p.Containers) == 0 })
	snapshot.Pods = inParallel(pods, func(pod Pod) PodSnapshot {
		if fromRuntime != nil {
			return runtimeSnapshot(pod, fromRuntime)
		}
		return s.takePod(ctx, pod, network)
	})
	snapshot.Err = err
	return snapshot
}

// inParallel calls f for each pod, with a goroutine for each processor, because the kernel takes long to count.
func inParallel(pods []Pod, f func(Pod) PodSnapshot) []PodSnapshot {
	taken := make([]PodSnapshot, len(pods))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(pods)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(pods)); i = next.Add(1) - 1 {
				taken[i] = f(pods[i])
			}
		})
	}
	all.Wait()
	return taken
}

// takePod measures a pod. A cgroup that is gone is left out: its processes have ended meanwhile.
func (s *Sampler) takePod(ctx context.Context, pod Pod, network bool) PodSnapshot {
	taken := PodSnapshot{Pod: pod}
	cgroups := s.options.Cgroups
	path := cgroups.Path(pod.Pod)
	taken.Usage = s.measure(path)
	if n, err := cgroups.Processes(path); err == nil {
		taken.Processes = &n
	}
	for _, c := range pod.Containers {
		child, err := cgroups.ContainerPath(path, c.ID)
		if err != nil {
			continue
		}
		if m := s.measure(child); m != nil {
			taken.Containers = append(taken.Containers, ContainerSnapshot{Container: c, Measured: m})
		}
	}
	slices.SortFunc(taken.Containers, func(a, b ContainerSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	if !network || pod.Sandbox == "" {
		return taken
	}
	var members []string // cgroups with processes in the pod's network namespace
	if sandbox, err := cgroups.ContainerPath(path, pod.Sandbox); err == nil {
		taken.SandboxUsage = s.measure(sandbox)
		members = append(members, sandbox)
	}
	if pod.Spec.HostNetwork {
		return taken
	}
	for _, c := range taken.Containers {
		members = append(members, c.Cgroup)
	}
	var err error
	if taken.Interfaces, err = s.interfaces(members); err != nil {
		klog.FromContext(ctx).V(4).Info("Cannot read the network statistics of a pod", "pod", klog.KObj(pod.Pod), "err", err)
	}
	return taken
}

// interfaces returns the network interfaces that the processes of cgroups share. The first cgroup may be without a process:
// CRI-O's sandboxes have none.
func (s *Sampler) interfaces(members []string) ([]Interface, error) {
	var failed error
	for _, member := range members {
		pids, err := s.options.Cgroups.PIDs(member)
		if err != nil || len(pids) == 0 {
			failed = errors.Join(failed, err)
			continue
		}
		interfaces, err := interfacesOf(pids[0])
		if err == nil {
			return interfaces, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// measure returns nil if the cgroup does not exist.
func (s *Sampler) measure(path string) *Measured {
	sample, err := s.options.Cgroups.Sample(path)
	if err != nil {
		return nil
	}
	return &Measured{Sample: sample, Cgroup: path, Time: s.options.Clock.Now(), Whole: true}
}

// fromRuntime returns what containers use, by the names that [containerKey] returns.
func (s *Sampler) fromRuntime(ctx context.Context) (map[string]stats.Container, error) {
	pods, err := s.options.FromRuntime(ctx)
	containers := map[string]stats.Container{}
	for uid, pod := range pods {
		for _, c := range pod.Containers {
			containers[containerKey(string(uid), c.Name)] = c
		}
	}
	return containers, err
}

func containerKey(uid, name string) string { return uid + "/" + name }

func runtimeSnapshot(pod Pod, from map[string]stats.Container) PodSnapshot {
	taken := PodSnapshot{Pod: pod}
	for _, c := range pod.Containers {
		if used, ok := from[containerKey(string(pod.UID), c.Name)]; ok {
			taken.Containers = append(taken.Containers, ContainerSnapshot{Container: c, Measured: &Measured{
				Sample: cgroup.Sample{Usage: cgroup.Usage{CPU: used.CPU, Memory: used.Memory}}, Cgroup: c.ID, Time: used.Time,
			}})
		}
	}
	return taken
}
