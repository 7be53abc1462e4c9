// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	compbasemetrics "k8s.io/component-base/metrics"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"
)

// Upstream's buckets, of milliseconds and of seconds.
var (
	resizeBuckets   = []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}
	deferralBuckets = []float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600}
)

// allocations are the metrics of the resources that pods are admitted with and resized to.
type allocations struct {
	admissions                                              *compbasemetrics.CounterVec
	requestedResizes, infeasibleResizes, deferredAcceptions *compbasemetrics.CounterVec
	resizeDuration, deferralDuration                        *compbasemetrics.HistogramVec
}

func (m *Metrics) addAllocations() {
	r, a := m.registry, &m.allocations
	a.admissions = counters(r, "pod_level_resources_admission_total", "Total number of pods admitted during Kubelet admission, categorized by resource configuration mode (pod_and_container_level, pod_level, container_level, or empty for unconfigured/BestEffort) and QoS class.",
		"config_mode", "qos_class")
	a.requestedResizes = counters(r, "container_requested_resizes_total", "Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.",
		"resource", "requirement", "operation")
	a.infeasibleResizes = counters(r, "pod_infeasible_resizes_total", "Number of infeasible resizes for pods.", "reason_detail")
	a.deferredAcceptions = counters(r, "pod_deferred_accepted_resizes_total", "Cumulative number of resizes that were accepted after being deferred.", "retry_trigger")
	a.resizeDuration = histograms(r, "pod_resize_duration_milliseconds", "Duration in milliseconds to actuate a pod resize", resizeBuckets, "success")
	a.deferralDuration = histograms(r, "pod_deferred_resize_duration_seconds", "Duration in seconds that a pod resize remains deferred before completion. "+priorityHelp+" Label 'resolution' describes how the deferred resize was resolved (accepted, reverted, terminated).",
		deferralBuckets, "resolution", "priority_bucket")
}

// PodAdmitted counts a pod that the node admits, by the level at which it has resources.
func (m *Metrics) PodAdmitted(p *v1.Pod) {
	if m != nil {
		m.admissions.WithLabelValues(resourceLevel(p), strings.ToLower(string(qos.GetPodQOS(p)))).Inc()
	}
}

// resourceLevel returns the level at which a pod has requests or limits; empty if it has none.
func resourceLevel(p *v1.Pod) string {
	ofPod, ofContainers := resourcehelper.IsPodLevelResourcesSet(p), haveResources(p.Spec.Containers) || haveResources(p.Spec.InitContainers)
	switch {
	case ofPod && ofContainers:
		return "pod_and_container_level"
	case ofPod:
		return "pod_level"
	case ofContainers:
		return "container_level"
	}
	return ""
}

func haveResources(containers []v1.Container) bool {
	for i := range containers {
		if r := &containers[i].Resources; len(r.Requests) > 0 || len(r.Limits) > 0 {
			return true
		}
	}
	return false
}

// ResizeRequested counts a change of a container's resource ("cpu" or "memory"): of its "requests" or "limits", which is to
// "add", "remove", "increase" or "decrease" them.
func (m *Metrics) ResizeRequested(resource, requirement, operation string) {
	if m != nil {
		m.requestedResizes.WithLabelValues(resource, requirement, operation).Inc()
	}
}

// ResizeInfeasible counts a resize that the node can never do.
func (m *Metrics) ResizeInfeasible(detail string) {
	if m != nil {
		m.infeasibleResizes.WithLabelValues(detail).Inc()
	}
}

// DeferredResizeAccepted counts a resize that was deferred and is accepted. trigger is why it was tried again.
func (m *Metrics) DeferredResizeAccepted(trigger string) {
	if m != nil {
		m.deferredAcceptions.WithLabelValues(trigger).Inc()
	}
}

// DeferralEnded counts a resize that is no longer deferred: it was "accepted" or "reverted", or the pod "terminated".
func (m *Metrics) DeferralEnded(resolution string, p *v1.Pod, took time.Duration) {
	if m != nil {
		m.deferralDuration.WithLabelValues(resolution, PriorityBucket(p)).Observe(took.Seconds())
	}
}

// PodResized counts an attempt to give a pod's containers and cgroup their allocated size.
func (m *Metrics) PodResized(took time.Duration, err error) {
	if m != nil {
		m.resizeDuration.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(took.Milliseconds()))
	}
}

// systemCritical is the least priority of pods that the system needs.
const systemCritical = 2_000_000_000

// priorityHelp explains the values of PriorityBucket.
const priorityHelp = "Label 'priority_bucket' classifies the pod priority (system-critical: >=2000000000, high: 100000..1999999999, medium: 1..99999, normal: 0/default, low: -999..-1, very-low: <=-1000, unknown: nil pod)."

// PriorityBucket returns the label of a pod's priority. It is "unknown" for a pod that no longer exists, which is nil.
func PriorityBucket(p *v1.Pod) string {
	if p == nil {
		return "unknown"
	}
	priority := int32(0)
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	switch {
	case priority >= systemCritical:
		return "system-critical"
	case priority >= 100_000:
		return "high"
	case priority > 0:
		return "medium"
	case priority == 0:
		return "normal"
	case priority > -1000:
		return "low"
	}
	return "very-low"
}
