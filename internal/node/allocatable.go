// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/eviction"
)

// capacity returns the machine's capacity, and what of it is allocatable to pods: without what the configuration
// reserves, hard eviction thresholds and huge pages.
func (m machine) capacity(c *config.Configuration) (capacity, allocatable v1.ResourceList) {
	quantity := func(n int64, format resource.Format) resource.Quantity { return *resource.NewQuantity(n, format) }
	capacity = v1.ResourceList{
		v1.ResourceCPU:    quantity(m.cpus, resource.DecimalSI),
		v1.ResourceMemory: quantity(m.memory, resource.BinarySI),
		v1.ResourcePods:   quantity(int64(c.MaxPods), resource.DecimalSI),
	}
	if *c.LocalStorageCapacityIsolation {
		capacity[v1.ResourceEphemeralStorage] = quantity(m.disk, resource.BinarySI)
	}
	for size, bytes := range m.hugePages {
		capacity[v1.ResourceName(v1.ResourceHugePagesPrefix+size)] = quantity(bytes, resource.BinarySI)
	}
	allocatable = capacity.DeepCopy()
	take(allocatable, unallocatable(c, capacity))
	for _, bytes := range m.hugePages {
		take(allocatable, v1.ResourceList{v1.ResourceMemory: quantity(bytes, resource.BinarySI)})
	}
	return capacity, allocatable
}

// limitPods returns the configuration with at most podsPerCore pods for each processor.
func (m machine) limitPods(c *config.Configuration) *config.Configuration {
	limit := int64(c.PodsPerCore) * m.cpus
	if limit == 0 || limit >= int64(c.MaxPods) {
		return c
	}
	limited := *c
	limited.MaxPods = int32(limit)
	return &limited
}

// take subtracts what is known of list, down to 0.
func take(from, list v1.ResourceList) {
	for name, amount := range list {
		left, ok := from[name]
		if !ok {
			continue
		}
		left.Sub(amount)
		if left.Sign() < 0 {
			left.Set(0)
		}
		from[name] = left
	}
}

// unallocatable returns what kubeReserved, systemReserved and hard eviction thresholds keep from pods.
func (m machine) unallocatable(c *config.Configuration) v1.ResourceList {
	capacity, _ := m.capacity(c)
	return unallocatable(c, capacity)
}

func unallocatable(c *config.Configuration, capacity v1.ResourceList) v1.ResourceList {
	sum := reservation(c)
	for name, amount := range hardThresholds(c, capacity) {
		total := sum[name]
		total.Add(amount)
		sum[name] = total
	}
	return sum
}

// reservation returns what kubeReserved and systemReserved reserve. The CPUs of reservedSystemCPUs replace both's.
func reservation(c *config.Configuration) v1.ResourceList {
	sum := v1.ResourceList{}
	for _, reserved := range []map[string]string{c.KubeReserved, c.SystemReserved} {
		for name, text := range reserved {
			amount, err := resource.ParseQuantity(text)
			if err != nil {
				continue // the configuration's validation has refused it
			}
			total := sum[v1.ResourceName(name)]
			total.Add(amount)
			sum[v1.ResourceName(name)] = total
		}
	}
	if set, err := cpuset.Parse(c.ReservedSystemCPUs); err == nil && !set.IsEmpty() {
		sum[v1.ResourceCPU] = *resource.NewQuantity(int64(set.Size()), resource.DecimalSI)
	}
	return sum
}

// hardThresholds returns what must be left of memory and disk lest pods are evicted.
func hardThresholds(c *config.Configuration, capacity v1.ResourceList) v1.ResourceList {
	parsed, err := eviction.Parse(&c.KubeletConfiguration)
	if err != nil {
		return nil // likewise
	}
	list := v1.ResourceList{}
	for _, t := range parsed.Thresholds {
		for signal, name := range map[eviction.Signal]v1.ResourceName{
			eviction.MemoryAvailable: v1.ResourceMemory, eviction.NodeFsAvailable: v1.ResourceEphemeralStorage,
		} {
			if t.Signal == signal && t.IsHard() {
				list[name] = t.Value.Of(capacity[name])
			}
		}
	}
	return list
}

// checkReservation returns an error if more is reserved than the machine has.
func (m machine) checkReservation(c *config.Configuration) error {
	capacity, _ := m.capacity(c)
	var problems []string
	for name, amount := range unallocatable(c, capacity) {
		if have, ok := capacity[name]; ok && amount.Cmp(have) > 0 {
			problems = append(problems, fmt.Sprintf("%s of %s, and the machine has %s", amount.String(), name, have.String()))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return fmt.Errorf("kubeReserved, systemReserved and evictionHard reserve %s", strings.Join(problems, "; "))
}

// enforceRetry is the pause after the kernel refused the limit of pods: they use more now.
const enforceRetry = time.Minute

// pids is the resource of processes and threads, which the configuration may reserve. The Node does not show it.
const pids v1.ResourceName = "pid"

// podLimits returns what all pods together may use: what is not reserved, or if that is not enforced, all of the machine.
func (m machine) podLimits(c *config.Configuration, maxPIDs int64) v1.ResourceList {
	limits, _ := m.capacity(c)
	limits[pids] = *resource.NewQuantity(maxPIDs, resource.DecimalSI)
	if slices.Contains(c.EnforceNodeAllocatable, "pods") {
		take(limits, reservation(c))
	}
	return limits
}

// enforceAllocatable limits the memory and the processes of all pods together to what is not reserved. Hard thresholds are above that limit,
// so that pods are evicted before the kernel kills.
func (a *Agent) enforceAllocatable(ctx context.Context) {
	_, most, err := processes("/proc")
	if err != nil {
		klog.FromContext(ctx).Error(err, "The processes of pods are not limited")
		most = math.MaxInt32
	}
	limits := a.registration.reporter.machine.podLimits(a.options.Config, most)
	processes := limits[pids]
	for {
		limited, err := a.cgroups.LimitPods(limits.Cpu().MilliValue(), limits.Memory().Value(), processes.Value())
		if !limited {
			return
		}
		if err == nil {
			a.registration.record(v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
			return
		}
		a.registration.record(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement",
			fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", a.options.CgroupParent, err))
		if !a.registration.pause(ctx, enforceRetry) {
			return
		}
	}
}

// sharePeriod is upstream's.
const sharePeriod = time.Minute

// shareCPU keeps the CPU shares of the quality-of-service classes.
func (a *Agent) shareCPU(ctx context.Context) {
	for a.registration.pause(ctx, sharePeriod) {
		if err := a.cgroups.Share(); err != nil {
			klog.FromContext(ctx).Error(err, "The CPU shares of burstable and best-effort pods are not up to date")
		}
	}
}
