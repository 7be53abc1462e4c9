// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kindred-project/kindred/internal/node/stats"
)

// Annotations that say what the running containers of a simulated pod use. They are quantities, such as
// 250m and 64Mi, and may be changed while the pod runs. They apply to each container. The same key with
// a dot and the name of a container applies to that container alone.
//
// Containers without them use nothing, as idle ones do: usage that nobody asked for would make
// autoscalers act.
const (
	CPU    = "kindred.dev/simulated-cpu"
	Memory = "kindred.dev/simulated-memory"
)

// checkUsage validates the annotations.
func checkUsage(p *v1.Pod) error {
	for key, value := range p.Annotations {
		for _, annotation := range []string{CPU, Memory} {
			if key != annotation && !strings.HasPrefix(key, annotation+".") {
				continue
			}
			if q, err := resource.ParseQuantity(value); err != nil || q.Sign() < 0 {
				return fmt.Errorf("annotation %s is %q, not a quantity such as 250m or 64Mi", key, value)
			}
		}
	}
	return nil
}

// usageOf returns what an annotation says that a container uses. Values that became invalid while the
// pod runs count as none.
func usageOf(p *v1.Pod, annotation, container string) resource.Quantity {
	value, ok := p.Annotations[annotation+"."+container]
	if !ok {
		value = p.Annotations[annotation]
	}
	if value == "" {
		return resource.Quantity{}
	}
	q, err := resource.ParseQuantity(value)
	if err != nil || q.Sign() < 0 {
		return resource.Quantity{}
	}
	return q
}

// counter is the CPU time of a container up to a moment. It has a state, because the annotation may
// change, and a counter must not decrease.
type counter struct {
	at  time.Time
	cpu time.Duration
}

// advance adds the time since the last call at a constant use.
func (c *counter) advance(now time.Time, cpu resource.Quantity) {
	if elapsed := now.Sub(c.at); elapsed > 0 {
		c.cpu += time.Duration(float64(elapsed) * cpu.AsApproximateFloat64())
		c.at = now
	}
}

// counters are those of the containers of one node, by the container's ID: a restarted container begins at 0.
type counters map[string]counter

// usage holds the CPU counters of the last sample, by node.
type usage struct {
	mu       sync.Mutex
	counters map[string]counters
	// ended is the CPU time of containers that have ended, which the counter of the node includes.
	ended map[string]time.Duration
}

func newUsage() usage {
	return usage{counters: map[string]counters{}, ended: map[string]time.Duration{}}
}

// sample returns what a pod's running containers use, and adds the counters to keep for the next sample to after.
func sample(p *v1.Pod, before, after counters, now time.Time) stats.Pod {
	pod := stats.Pod{Namespace: p.Namespace, Name: p.Name}
	total := stats.Usage{Time: now}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			s := &list[i]
			if s.State.Running == nil {
				continue
			}
			started := s.State.Running.StartedAt.Time
			c, known := before[s.ContainerID]
			if !known {
				c.at = started
			}
			c.advance(now, usageOf(p, CPU, s.Name))
			after[s.ContainerID] = c
			memory := usageOf(p, Memory, s.Name)
			usage := stats.Usage{Time: now, CPU: c.cpu, Memory: uint64(memory.Value())}
			pod.Containers = append(pod.Containers, stats.Container{Name: s.Name, Started: started, Usage: usage})
			total.CPU += usage.CPU
			total.Memory += usage.Memory
		}
	}
	pod.Usage = &total
	return pod
}

// Stats returns the source of what a simulated node and its pods use, or nil if the node is not one of
// these.
func (n *Nodes) Stats(node string) stats.Source {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.index[node]; !known {
		return nil
	}
	return func(context.Context) (stats.Summary, error) { return n.summary(node), nil }
}

// summary takes a sample of a node, which uses what its pods use.
func (n *Nodes) summary(node string) stats.Summary {
	now := n.options.Clock.Now()
	n.usage.mu.Lock()
	defer n.usage.mu.Unlock()
	before := n.usage.counters[node]
	after := make(counters, len(before))
	total := stats.Usage{Time: now}
	var summary stats.Summary
	pods, _ := n.pods.GetIndexer().ByIndex(nodeIndex, node) // the index exists
	for _, object := range pods {
		pod := sample(object.(*v1.Pod), before, after, now)
		if len(pod.Containers) == 0 {
			continue
		}
		summary.Pods = append(summary.Pods, pod)
		total.CPU += pod.Usage.CPU
		total.Memory += pod.Usage.Memory
	}
	n.usage.counters[node] = after
	n.usage.ended[node] += before.endedBut(after)
	total.CPU += n.usage.ended[node]
	summary.Node = &total
	return summary
}

// endedBut returns the CPU time of the containers that are not in a later sample.
func (u counters) endedBut(after counters) time.Duration {
	var ended time.Duration
	for id, c := range u {
		if _, runs := after[id]; !runs {
			ended += c.cpu
		}
	}
	return ended
}
