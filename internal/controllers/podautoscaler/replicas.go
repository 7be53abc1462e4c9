// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"errors"
	"maps"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// The defaults of upstream's flags.
const (
	// cpuInitializationPeriod is the time after a pod's start in which its CPU samples count only if
	// they were taken while it was ready.
	cpuInitializationPeriod = 5 * time.Minute
	// initialReadinessDelay is the time after a pod's start in which unreadiness means that it has not
	// been ready yet.
	initialReadinessDelay = 30 * time.Second
	defaultTolerance      = 0.1
)

// sample is the value of a metric of one pod, in thousandths, averaged over the window before at.
type sample struct {
	at     time.Time
	window time.Duration
	value  int64
}

// samples are by pod name.
type samples map[string]sample

// tolerances are how far the ratio of usage and target may be from 1 without a change.
type tolerances struct{ down, up float64 }

func (t tolerances) accept(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// reading is what a target compares: the usage of all sampled pods.
type reading struct {
	// ratio is usage by target.
	ratio float64
	// average is the usage of a pod, utilization the same in percent of its request, if the target is a
	// utilization.
	average     int64
	utilization *int32
}

// target is the wanted usage of a pod.
type target interface {
	// read compares the samples with the target. There is at least one.
	read(samples) (reading, error)
	// assumed is the usage of a pod without sample when replicas are removed.
	assumed(pod string) int64
}

// averageTarget is a usage that is the same for each pod.
type averageTarget int64

func (t averageTarget) read(from samples) (reading, error) {
	total := int64(0)
	for _, s := range from {
		total += s.value
	}
	average := total / int64(len(from))
	return reading{ratio: float64(average) / float64(t), average: average}, nil
}

func (t averageTarget) assumed(string) int64 { return int64(t) }

// utilizationTarget is a usage in percent of what each pod requests.
type utilizationTarget struct {
	percent  int32
	requests map[string]int64
}

func (t utilizationTarget) read(from samples) (reading, error) {
	used, requested, count := int64(0), int64(0), int64(0)
	for pod, s := range from {
		if request, known := t.requests[pod]; known {
			used, requested, count = used+s.value, requested+request, count+1
		}
	}
	if requested == 0 {
		return reading{}, errors.New("no metrics returned matched known pods")
	}
	utilization := int32(used * 100 / requested)
	return reading{ratio: float64(utilization) / float64(t.percent), average: used / count, utilization: &utilization}, nil
}

// assumed is the request, or the target if that is more.
func (t utilizationTarget) assumed(pod string) int64 {
	return t.requests[pod] * int64(max(100, t.percent)) / 100
}

// groups are the pods of an autoscaler by what is known of them. Pods that are terminating or have
// failed are in none.
type groups struct {
	ready int
	// unready pods are not running or not ready yet, missing ones have no sample.
	unready, missing sets.Set[string]
}

// groupPods sorts pods into groups, and drops the samples that must not be used.
func groupPods(all []*corev1.Pod, from samples, cpu bool, now time.Time) (groups, samples) {
	g := groups{unready: sets.New[string](), missing: sets.New[string]()}
	kept := maps.Clone(from)
	for _, pod := range all {
		s, sampled := from[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
			delete(kept, pod.Name)
		case pod.Status.Phase == corev1.PodPending:
			g.unready.Insert(pod.Name)
			delete(kept, pod.Name)
		case !sampled:
			g.missing.Insert(pod.Name)
		case cpu && isStarting(pod, s, now):
			g.unready.Insert(pod.Name)
			delete(kept, pod.Name)
		default:
			g.ready++
		}
	}
	return g, kept
}

// isStarting reports whether a sample shows the CPU that a pod uses to become ready, which says nothing
// about its load.
func isStarting(pod *corev1.Pod, s sample, now time.Time) bool {
	ready := pods.Condition(pod, corev1.PodReady)
	if ready == nil || pod.Status.StartTime == nil {
		return true
	}
	started, unready := pod.Status.StartTime.Time, ready.Status == corev1.ConditionFalse
	if started.Add(cpuInitializationPeriod).After(now) {
		return unready || s.at.Before(ready.LastTransitionTime.Add(s.window))
	}
	return unready && started.Add(initialReadinessDelay).After(ready.LastTransitionTime.Time)
}

// forPods returns the replicas with which the pods would meet a target.
func forPods(current int32, all []*corev1.Pod, from samples, cpu bool, newTarget func() (target, error), t tolerances, now time.Time) (int32, reading, error) {
	if len(all) == 0 {
		return 0, reading{}, errors.New("no pods returned by selector while calculating replica count")
	}
	g, used := groupPods(all, from, cpu, now)
	if len(used) == 0 {
		return 0, reading{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	want, err := newTarget()
	if err != nil {
		return 0, reading{}, err
	}
	measured, err := want.read(used)
	if err != nil {
		return 0, reading{}, err
	}
	waiting := len(g.unready) > 0 && measured.ratio > 1
	if !waiting && len(g.missing) == 0 {
		if t.accept(measured.ratio) {
			return current, measured, nil
		}
		return roundUp(measured.ratio * float64(g.ready)), measured, nil
	}
	g.assume(used, measured.ratio, want)
	damped, err := want.read(used)
	if err != nil {
		return 0, measured, err
	}
	replicas := roundUp(damped.ratio * float64(len(used)))
	switch {
	case t.accept(damped.ratio),
		measured.ratio < 1 && damped.ratio > 1, measured.ratio > 1 && damped.ratio < 1,
		damped.ratio < 1 && replicas > current, damped.ratio > 1 && replicas < current:
		return current, measured, nil // unknown usage must not change the direction
	}
	return replicas, measured, nil
}

// assume adds usages for the pods without usable sample, so that they oppose the change: none when
// replicas are added, the target when they are removed.
func (g groups) assume(used samples, ratio float64, want target) {
	for pod := range g.missing {
		switch {
		case ratio < 1:
			used[pod] = sample{value: want.assumed(pod)}
		case ratio > 1:
			used[pod] = sample{}
		}
	}
	if ratio > 1 {
		for pod := range g.unready {
			used[pod] = sample{}
		}
	}
}

// forValue returns the replicas for a value that all pods share, of an object or an external metric.
// From 0 replicas, the value alone decides.
func forValue(current int32, usage, want int64, all []*corev1.Pod, t tolerances) (int32, error) {
	ratio := float64(usage) / float64(want)
	if current == 0 {
		return roundUp(ratio), nil
	}
	if t.accept(ratio) {
		return current, nil
	}
	if len(all) == 0 {
		return 0, errors.New("unable to calculate ready pods: no pods returned by selector while calculating replica count")
	}
	ready := 0
	for _, pod := range all {
		if pod.Status.Phase == corev1.PodRunning && pods.IsReady(pod) {
			ready++
		}
	}
	return roundUp(ratio * float64(ready)), nil
}

// forShare returns the replicas for a value that is divided by the pods, and the share of each.
func forShare(status int32, usage, want int64, t tolerances) (replicas int32, share int64) {
	replicas = status
	if ratio := float64(usage) / (float64(want) * float64(status)); !t.accept(ratio) {
		replicas = roundUp(float64(usage) / float64(want))
	}
	if status == 0 {
		return replicas, usage // nobody shares it
	}
	return replicas, clamp(math.Ceil(float64(usage) / float64(status)))
}

// roundUp returns the least number of replicas that is not less than f.
func roundUp(f float64) int32 {
	switch f = math.Ceil(f); {
	case math.IsNaN(f):
		return 0 // nothing used by nothing
	case f >= math.MaxInt32:
		return math.MaxInt32
	}
	return int32(f)
}

// clamp converts to an integer, which is at most the largest one.
func clamp(f float64) int64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(f)
}
