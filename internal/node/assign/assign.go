// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/cpus"
	"github.com/kindred-project/kindred/internal/node/deviceplugin"
	"github.com/kindred-project/kindred/internal/node/memory"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// Assign assigns a new pod what its containers request, or returns why the node refuses the pod. A pod that an agent
// assigned something before it crashed keeps that.
func (m *Manager) Assign(ctx context.Context, p *v1.Pod) *pod.Refusal {
	m.assigning.Lock()
	defer m.assigning.Unlock()
	if m.Has(p.UID) {
		return nil
	}
	round := &round{Manager: m, pod: p, record: &record{}, others: m.store.all()}
	begin := m.options.Clock.Now()
	err := round.run(ctx)
	if m.options.Observer != nil {
		m.options.Observer.PodAligned(m.options.Clock.Since(begin), err)
	}
	if err != nil {
		return refusal(err)
	}
	if len(round.record.Containers) == 0 {
		return nil
	}
	if err := m.store.put(p.UID, round.record); err != nil {
		return refusal(err)
	}
	m.check()
	return nil
}

// affinityError is the refusal of a pod by the topology policy.
type affinityError struct{}

func (affinityError) Error() string { return "Resources cannot be allocated with Topology locality" }

// Reason is the reason in the pod's status.
func (affinityError) Reason() string { return "TopologyAffinityError" }

func refusal(err error) *pod.Refusal {
	var known interface {
		error
		Reason() string
	}
	if errors.As(err, &known) {
		return &pod.Refusal{Reason: known.Reason(), Message: known.Error()}
	}
	return &pod.Refusal{Reason: "UnexpectedAdmissionError", Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

// round is the assignment of one pod.
type round struct {
	*Manager
	pod    *v1.Pod
	record *record // what the pod's containers have so far
	others map[types.UID]*record
}

func (r *round) run(ctx context.Context) error {
	hint := topology.Hint{}
	if r.policy.Scope == topology.PodScope {
		var err error
		hint, err = r.merge(r.podRequests(), false)
		if r.observeHint(err); err != nil {
			return err
		}
	}
	for _, c := range inOrder(r.pod) {
		wanted := r.requests(c)
		ends := endsEarly(r.pod, c)
		if r.policy.Scope == topology.ContainerScope {
			var err error
			hint, err = r.merge(wanted, ends)
			if r.observeHint(err); err != nil {
				return err
			}
		}
		got, err := r.allocate(ctx, wanted, hint, ends)
		if err != nil {
			return err
		}
		r.observeAligned(topology.ContainerScope)
		if got.Name = c.Name; !got.hasNothing() {
			r.record.Containers = append(r.record.Containers, got)
		}
	}
	r.observeAligned(topology.PodScope)
	return nil
}

// wanted is what is requested.
type wanted struct {
	cpus    int
	memory  map[v1.ResourceName]uint64
	devices map[string]int
}

// requests returns what a container requests of what this package assigns.
func (r *round) requests(c *v1.Container) wanted {
	w := wanted{devices: map[string]int{}}
	if r.cpus != nil {
		w.cpus = cpus.Requested(r.pod, c)
	}
	if r.memory != nil {
		w.memory = memory.Requested(r.pod, c)
	}
	for name, q := range c.Resources.Limits {
		if count := int(q.Value()); count > 0 && r.options.Plugins.Has(string(name)) && !isOfClaim(r.pod, c, name) {
			w.devices[string(name)] = count
		}
	}
	return w
}

// isOfClaim reports whether a DRA driver provides a container's extended resource (KEP-5004).
func isOfClaim(p *v1.Pod, c *v1.Container, name v1.ResourceName) bool {
	if p.Status.ExtendedResourceClaimStatus == nil {
		return false
	}
	return slices.ContainsFunc(p.Status.ExtendedResourceClaimStatus.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == c.Name && m.ResourceName == string(name)
	})
}

// podRequests returns the most that the pod's containers request at the same time.
func (r *round) podRequests() wanted {
	stays, most := map[string]uint64{}, map[string]uint64{}
	for _, c := range inOrder(r.pod) {
		for name, amount := range r.requests(c).amounts() {
			most[name] = max(most[name], stays[name]+amount)
			if !endsEarly(r.pod, c) {
				stays[name] += amount
			}
		}
	}
	total := wanted{memory: map[v1.ResourceName]uint64{}, devices: map[string]int{}}
	for name, amount := range most {
		switch {
		case name == string(v1.ResourceCPU):
			total.cpus = int(amount)
		case r.options.Plugins.Has(name):
			total.devices[name] = int(amount)
		default:
			total.memory[v1.ResourceName(name)] = amount
		}
	}
	return total
}

func (w wanted) amounts() map[string]uint64 {
	all := map[string]uint64{string(v1.ResourceCPU): uint64(w.cpus)}
	for name, size := range w.memory {
		all[string(name)] = size
	}
	for name, count := range w.devices {
		all[name] = uint64(count)
	}
	return all
}

// merge returns the NUMA nodes for what is wanted, as the topology policy chooses them.
func (r *round) merge(w wanted, ends bool) (topology.Hint, error) {
	if r.policy.Name == topology.None {
		return topology.Hint{}, nil
	}
	var lists []topology.Hints
	for name, count := range w.devices {
		lists = append(lists, r.options.Plugins.Hints(r.deviceRequest(name, count)))
	}
	if w.cpus > 0 {
		lists = append(lists, r.cpus.Hints(w.cpus, r.usedCPUs(), r.record.reusableCPUs()))
	}
	if len(w.memory) > 0 {
		for _, hints := range r.memory.Hints(r.memoryRequest(w, ends)) {
			lists = append(lists, hints)
		}
	}
	hint, admit := r.policy.Merge(lists)
	if !admit {
		return hint, affinityError{}
	}
	return hint, nil
}

// allocate chooses what a container gets.
func (r *round) allocate(ctx context.Context, w wanted, hint topology.Hint, ends bool) (container, error) {
	got := container{Ends: ends}
	for _, name := range slices.Sorted(maps.Keys(w.devices)) {
		request := r.deviceRequest(name, w.devices[name])
		request.Nodes = hint.Nodes
		d, err := r.allocateDevices(ctx, request)
		if err != nil {
			return got, err
		}
		if got.Devices == nil {
			got.Devices = map[string]devices{}
		}
		got.Devices[name] = d
	}
	if w.cpus > 0 {
		set, err := r.cpus.Allocate(w.cpus, r.usedCPUs(), r.record.reusableCPUs(), hint.Nodes)
		if r.observeCPUs(set, err); err != nil {
			return got, err
		}
		got.CPUs = set.String()
	}
	if len(w.memory) > 0 {
		var err error
		got.Memory, err = r.memory.Allocate(r.memoryRequest(w, ends), hint)
		if r.observeMemory(err); err != nil {
			return got, err
		}
	}
	return got, nil
}

func (r *round) allocateDevices(ctx context.Context, request deviceplugin.Request) (devices, error) {
	ids, response, err := r.options.Plugins.Allocate(ctx, request)
	if err != nil {
		return devices{}, err
	}
	d := devices{IDs: ids, Nodes: map[string]topology.Mask{}}
	if d.Response, err = proto.Marshal(response); err != nil {
		return devices{}, err
	}
	all := r.options.Plugins.Devices()[request.Resource]
	for _, id := range ids {
		if nodes := all[id].Nodes; nodes != 0 {
			d.Nodes[id] = nodes
		}
	}
	return d, nil
}

func (r *round) usedCPUs() cpuset.CPUSet {
	used := r.record.cpus()
	for _, other := range r.others {
		used = used.Union(other.cpus())
	}
	return used
}

func (r *round) deviceRequest(name string, count int) deviceplugin.Request {
	used, reusable := r.record.devices(name)
	for _, other := range r.others {
		all, _ := other.devices(name)
		used = used.Union(all)
	}
	return deviceplugin.Request{Resource: name, Count: count, Used: used.Difference(reusable), Reusable: sets.New(reusable.UnsortedList()...)}
}

func (r *round) memoryRequest(w wanted, ends bool) memory.Request {
	request := memory.Request{Wanted: w.memory, Ends: ends, Pod: r.record.uses()}
	for _, other := range r.others {
		request.Others = append(request.Others, memory.Held(other.uses())...)
	}
	return request
}

// inOrder returns the pod's init and app containers, in the order in which they start.
func inOrder(p *v1.Pod) []*v1.Container {
	var all []*v1.Container
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// endsEarly reports whether a container ends before the next one starts: an init container that is no sidecar.
func endsEarly(p *v1.Pod, c *v1.Container) bool {
	return !pod.IsSidecar(c) && slices.ContainsFunc(p.Spec.InitContainers, func(init v1.Container) bool { return init.Name == c.Name })
}
