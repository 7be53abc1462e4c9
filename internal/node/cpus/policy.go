// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/qos"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/topology"
)

// The policies (cpuManagerPolicy).
const (
	None   = "none"
	Static = "static"
)

const (
	fullPCPUsOnly        = "full-pcpus-only"
	distributeAcrossNUMA = "distribute-cpus-across-numa"
	strictReservation    = "strict-cpu-reservation"
	preferUncoreCache    = "prefer-align-cpus-by-uncorecache"
)

// alphaOptions are off by default in upstream's kubelet, whose feature gates are not configurable here.
var alphaOptions = []string{"align-by-socket", "distribute-cpus-across-cores"}

// Options are the options of the static policy (cpuManagerPolicyOptions).
type Options struct {
	FullPCPUsOnly, DistributeAcrossNUMA, StrictReservation, PreferUncoreCache bool
}

// ParseOptions returns the options in a KubeletConfiguration, and checks the policy that they belong to.
func ParseOptions(policy string, options map[string]string) (Options, error) {
	if policy != None && policy != Static {
		return Options{}, fmt.Errorf("cpuManagerPolicy is %q, and must be none or static", policy)
	}
	if policy == None && len(options) > 0 {
		return Options{}, errors.New("cpuManagerPolicyOptions is set, and cpuManagerPolicy none has no options; set cpuManagerPolicy to static")
	}
	o := Options{}
	fields := map[string]*bool{
		fullPCPUsOnly: &o.FullPCPUsOnly, distributeAcrossNUMA: &o.DistributeAcrossNUMA,
		strictReservation: &o.StrictReservation, preferUncoreCache: &o.PreferUncoreCache,
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		field, known := fields[name]
		switch {
		case slices.Contains(alphaOptions, name):
			return o, fmt.Errorf("cpuManagerPolicyOptions: CPU Manager Policy Alpha-level Options not enabled, but option %q provided", name)
		case !known:
			return o, fmt.Errorf("cpuManagerPolicyOptions: unknown CPU Manager Policy option: %q", name)
		}
		var err error
		if *field, err = strconv.ParseBool(options[name]); err != nil {
			return o, fmt.Errorf("cpuManagerPolicyOptions: bad value for option %q: %w", name, err)
		}
	}
	if o.PreferUncoreCache && o.DistributeAcrossNUMA {
		return o, fmt.Errorf("cpuManagerPolicyOptions: static policy options %s and %s can not be used at the same time", preferUncoreCache, distributeAcrossNUMA)
	}
	return o, nil
}

// Policy is the static policy on a machine.
type Policy struct {
	machine  *topology.Machine
	options  Options
	reserved cpuset.CPUSet
}

// New returns the static policy. reserved are the CPUs that no container gets for itself; if it is empty, count CPUs
// are chosen.
func New(machine *topology.Machine, options Options, reserved cpuset.CPUSet, count int) (*Policy, error) {
	p := &Policy{machine: machine, options: options, reserved: reserved}
	if reserved.IsEmpty() {
		if count < 1 {
			return nil, errors.New("cpuManagerPolicy static requires systemReserved cpu + kubeReserved cpu to be greater than zero, or reservedSystemCPUs: " +
				"the node's own processes and containers without CPUs of their own need some")
		}
		chosen, err := p.take(machine.All(), count)
		if err != nil {
			return nil, fmt.Errorf("unable to reserve the required amount of CPUs: %w", err)
		}
		p.reserved = chosen
	}
	if missing := p.reserved.Difference(machine.All()); !missing.IsEmpty() {
		return nil, fmt.Errorf("reservedSystemCPUs has CPUs that are not online: %s; online are %s", missing, machine.All())
	}
	return p, nil
}

// Allocatable returns the CPUs that containers can have for themselves.
func (p *Policy) Allocatable() cpuset.CPUSet { return p.machine.All().Difference(p.reserved) }

// FullCores reports whether containers get full cores only.
func (p *Policy) FullCores() bool { return p.options.FullPCPUsOnly }

// Shared returns the CPUs of containers without CPUs of their own. used are the CPUs of the other containers. The
// reserved ones are shared unless the reservation is strict.
func (p *Policy) Shared(used cpuset.CPUSet) cpuset.CPUSet {
	shared := p.machine.All().Difference(used)
	if p.options.StrictReservation {
		shared = shared.Difference(p.reserved)
	}
	return shared
}

// Requested returns how many CPUs a container is to have for itself: those that it requests, if its pod is
// Guaranteed and the number is whole, else 0. Pods with resources of their own (KEP-2837) have none: upstream's
// PodLevelResourceManagers is off by default.
func Requested(pod *v1.Pod, c *v1.Container) int {
	cpu := c.Resources.Requests[v1.ResourceCPU]
	if cpu.IsZero() || cpu.Value()*1000 != cpu.MilliValue() {
		return 0
	}
	if hasPodResources(pod) || qos.GetPodQOS(pod) != v1.PodQOSGuaranteed {
		return 0
	}
	return int(cpu.Value())
}

func hasPodResources(pod *v1.Pod) bool {
	r := pod.Spec.Resources
	return r != nil && len(r.Requests)+len(r.Limits) > 0
}

// SMTAlignmentError is the refusal of a container that full-pcpus-only does not allow.
type SMTAlignmentError struct{ message string }

func (e *SMTAlignmentError) Error() string { return "SMT Alignment Error: " + e.message }

// Reason is the reason in the pod's status.
func (e *SMTAlignmentError) Reason() string { return "SMTAlignmentError" }

// checkCores returns why full-pcpus-only does not allow n CPUs, or nil. A core that is reserved in part is not free.
func (p *Policy) checkCores(used cpuset.CPUSet, n int) error {
	size := p.machine.CPUsPerCore()
	if !p.options.FullPCPUsOnly {
		return nil
	}
	if n%size != 0 {
		return &SMTAlignmentError{fmt.Sprintf("requested %d cpus not multiple cpus per core = %d", n, size)}
	}
	if free := p.freeCores(used).Size(); n > free {
		return &SMTAlignmentError{fmt.Sprintf("not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free, n, size)}
	}
	return nil
}

// freeCores returns the CPUs of cores that are neither used nor reserved.
func (p *Policy) freeCores(used cpuset.CPUSet) cpuset.CPUSet {
	return p.machine.All().Difference(p.machine.SameCores(used.Union(p.reserved)))
}

// free returns the CPUs that a container can get.
func (p *Policy) free(used cpuset.CPUSet) cpuset.CPUSet {
	if p.options.FullPCPUsOnly {
		return p.freeCores(used)
	}
	return p.Allocatable().Difference(used)
}

// Allocate chooses n CPUs of those that no container has. nodes are the NUMA nodes where they should be, if it is not
// empty. reusable are CPUs of init containers of the same pod, which end before the container starts: they are taken
// first, so that a pod does not get more CPUs than it was scheduled for.
func (p *Policy) Allocate(n int, used, reusable cpuset.CPUSet, nodes topology.Mask) (cpuset.CPUSet, error) {
	used = used.Difference(reusable)
	if err := p.checkCores(used, n); err != nil {
		return cpuset.CPUSet{}, err
	}
	if n <= reusable.Size() {
		return p.takeOn(reusable, n, nodes)
	}
	free := p.free(used).Difference(reusable)
	more, err := p.takeOn(free, n-reusable.Size(), nodes)
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, free.Size()+reusable.Size())
	}
	return more.Union(reusable), nil
}

// takeOn takes CPUs of these nodes first.
func (p *Policy) takeOn(free cpuset.CPUSet, n int, nodes topology.Mask) (cpuset.CPUSet, error) {
	if nodes == 0 {
		return p.take(free, n)
	}
	aligned := free.Intersection(p.machine.OnNodes(nodes))
	taken, err := p.take(aligned, min(n, aligned.Size()))
	if err != nil || taken.Size() == n {
		return taken, err
	}
	rest, err := p.take(free.Difference(taken), n-taken.Size())
	return taken.Union(rest), err
}

// Hints returns the NUMA nodes on which n CPUs can be.
func (p *Policy) Hints(n int, used, reusable cpuset.CPUSet) topology.Hints {
	used = used.Difference(reusable)
	free, all := p.Allocatable().Difference(used).Union(reusable), p.machine.NodeMask()
	hints, least := topology.Hints{}, all.Count()
	for _, nodes := range all.Subsets() {
		on := p.machine.OnNodes(nodes)
		if on.Size() >= n {
			least = min(least, nodes.Count())
		}
		if reusable.IsSubsetOf(on) && on.Intersection(free).Size() >= n {
			hints = append(hints, topology.Hint{Nodes: nodes})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == least
	}
	return hints
}
