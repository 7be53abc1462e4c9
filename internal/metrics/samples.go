// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/stats"
)

// point is one sample of a container or a node.
type point struct {
	at time.Time
	// started is when the counter was 0; zero if unknown.
	started time.Time
	// cpu is the CPU time consumed since, memory the working set in bytes.
	cpu    time.Duration
	memory uint64
}

// series is the last two samples. A new container has only one, and before.at is zero.
type series struct{ before, last point }

// A container that was started less than an interval ago, but long enough for a meaningful average, is
// measured from its start: its counter was 0 then. metrics-server does the same.
const youngest = 10 * time.Second

// then returns the series after one more sample.
func (s series) then(p point) series {
	age := p.at.Sub(p.started)
	switch {
	case !p.started.IsZero() && age >= youngest && age < Interval:
		return series{before: point{at: p.started, started: p.started}, last: p}
	case s.last.at.IsZero(), p.started.After(s.last.at), p.cpu < s.last.cpu:
		// The container is new or was restarted.
		return series{last: p}
	case !p.at.After(s.last.at):
		return s // the node has not measured it since
	}
	return series{before: s.last, last: p}
}

// window returns the time that the usage is an average of; 0 if there is no usage yet.
func (s series) window() time.Duration {
	if s.before.at.IsZero() {
		return 0
	}
	return s.last.at.Sub(s.before.at)
}

// usage returns the average CPU over the window, and the memory, in metrics-server's units.
func (s series) usage() v1.ResourceList {
	cpu := float64(s.last.cpu-s.before.cpu) / s.window().Seconds()
	quantity := resource.NewScaledQuantity(int64(math.Round(cpu)), resource.Nano)
	quantity.Format = resource.DecimalSI
	return v1.ResourceList{
		v1.ResourceCPU:    *quantity,
		v1.ResourceMemory: *resource.NewQuantity(int64(s.last.memory), resource.BinarySI),
	}
}

// batch is what one node reports at one time.
type batch struct {
	node point // zero if the node does not report itself
	pods map[types.NamespacedName][]containerPoint
}

// containerPoint is one sample of a container. Those of a pod are a slice: they are few, and a map for each of 100,000 pods is several times as large.
type containerPoint struct {
	container string
	point
}

// containerSeries is the series of a container.
type containerSeries struct {
	container string
	series
}

// batchOf returns a node's report.
func batchOf(summary stats.Summary) batch {
	b := batch{pods: make(map[types.NamespacedName][]containerPoint, len(summary.Pods))}
	if summary.Node != nil {
		b.node = pointOf(*summary.Node, time.Time{})
	}
	for _, pod := range summary.Pods {
		points := make([]containerPoint, len(pod.Containers))
		for i := range pod.Containers {
			c := &pod.Containers[i]
			points[i] = containerPoint{c.Name, pointOf(c.Usage, c.Started)}
		}
		b.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = points
	}
	return b
}

func pointOf(u stats.Usage, started time.Time) point {
	return point{at: u.Time, started: started, cpu: u.CPU, memory: u.Memory}
}

// history is the series of one node and of the containers of its pods.
type history struct {
	node series
	pods map[types.NamespacedName][]containerSeries
}

// then returns the history after one more batch. What the batch does not have is dropped.
func (h history) then(b batch) history {
	next := history{pods: make(map[types.NamespacedName][]containerSeries, len(b.pods))}
	if !b.node.at.IsZero() {
		next.node = h.node.then(b.node)
	}
	for pod, points := range b.pods {
		after := make([]containerSeries, len(points))
		for i, p := range points {
			after[i] = containerSeries{p.container, h.of(pod, p.container).then(p.point)}
		}
		next.pods[pod] = after
	}
	return next
}

// of returns the series of a container.
func (h history) of(pod types.NamespacedName, container string) series {
	for _, s := range h.pods[pod] {
		if s.container == container {
			return s.series
		}
	}
	return series{}
}
