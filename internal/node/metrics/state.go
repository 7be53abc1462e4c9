// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// State is what is the case on a node.
type State struct {
	// RunningPods have a running sandbox.
	RunningPods int
	// Containers are their numbers by state: "created", "running", "exited" or "unknown".
	Containers map[string]int
	// DesiredPods are all pods of the node, and ActivePods those that have not ended. Static pods are counted apart.
	DesiredPods, ActivePods [2]int
	MirrorPods              int
	// WorkingPods are the pods that the agent works on.
	WorkingPods map[WorkingPod]int
	// MountedVolumes and WantedVolumes are the numbers of volumes of running pods by plugin, such as "kubernetes.io/secret".
	MountedVolumes, WantedVolumes map[string]int
	// SharedCPUs are those of containers without CPUs of their own, and ExclusiveCPUs those of the others. Both are 0 without
	// the policy static.
	SharedCPUs, ExclusiveCPUs int
	// ExclusiveCPUsOf are the numbers of CPUs that containers have of their own, by NUMA node; nil without the policy static.
	ExclusiveCPUsOf map[int]int
	// ProtectedMin and ProtectedLow are the bytes of memory that Guaranteed, and Burstable, pods have protected.
	ProtectedMin, ProtectedLow int64
	// PendingResizes are the pods whose resize waits or was refused, and ResizingPods those that are being resized.
	PendingResizes map[PendingResize]int
	ResizingPods   int
	// Claims are the numbers of prepared ResourceClaims by driver; "<any>" is the number of all.
	Claims              map[string]int
	EphemeralContainers int
	// PodCertificates are the numbers of certificates that signers issue to pods.
	PodCertificates map[PodCertificate]int
	// ServerCertificate is when the certificate of the server expires; zero if it is unknown.
	ServerCertificate time.Time
	Now               time.Time
	// Volumes are those with a claim, and Logs those of containers.
	Volumes []statsapi.VolumeStats
	Logs    []LogUsage
}

// PendingResize is a class of pods whose resize is not done. Reason is "deferred" or "infeasible", and Priority is a class of
// priorities, such as "normal".
type PendingResize struct{ Reason, Priority string }

// PodCertificate is a class of certificates. State is "not_yet_issued", "denied", "failed", "fresh", "overdue_for_refresh" or
// "expired".
type PodCertificate struct{ Signer, State string }

// WorkingPod is a class of pods.
type WorkingPod struct {
	// Lifecycle is "sync", "terminating" or "terminated", and Config is "desired", "orphan" or "runtime_only".
	// Static is "true" for static pods, and "unknown" for pods that only the runtime has.
	Lifecycle, Config, Static string
}

// LogUsage is what the logs of a container use.
type LogUsage struct {
	UID, Namespace, Pod, Container string
	Bytes                          uint64
}

// NewStateCollector returns the collector of what is the case when it is asked for.
func NewStateCollector(state func() State) prometheus.Collector { return stateCollector{state} }

type stateCollector struct{ state func() State }

// Describe implements prometheus.Collector. The collector is unchecked, because its metrics depend on the pods.
func (stateCollector) Describe(chan<- *prometheus.Desc) {}

func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, "[ALPHA] "+help, labels, nil)
}

var (
	runningPods       = description("kubelet_running_pods", "Number of pods that have a running pod sandbox")
	runningContainers = description("kubelet_running_containers", "Number of containers currently running", "container_state")
	desiredPods       = description("kubelet_desired_pods", "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", "static")
	activePods        = description("kubelet_active_pods", "The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.", "static")
	mirrorPods        = description("kubelet_mirror_pods", "The number of mirror pods the kubelet will try to create (one per admitted static pod)")
	ephemeral         = description("kubelet_managed_ephemeral_containers", "Current number of ephemeral containers in pods managed by this kubelet.")
	serverTTL         = description("kubelet_certificate_manager_server_ttl_seconds", "Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.")
	clientTTL         = description("kubelet_certificate_manager_client_ttl_seconds", "Seconds until the agent's client certificate expires; +Inf, because the agent uses none.")
	workingPods       = description("kubelet_working_pods", "Number of pods that the agent works on, by lifecycle, and by whether they are desired, orphaned, or known to the runtime only.", "lifecycle", "config", "static")
	totalVolumes      = description("volume_manager_total_volumes", "Number of volumes of the node's pods.", "plugin_name", "state")
	sharedCPUs        = description("kubelet_cpu_manager_shared_pool_size_millicores", "The CPUs that containers without CPUs of their own share, in millicores.")
	exclusiveCPUs     = description("kubelet_cpu_manager_exclusive_cpu_allocation_count", "The number of CPUs that containers have of their own.")
	nodeCPUs          = description("kubelet_cpu_manager_allocation_per_numa", "Number of CPUs allocated per NUMA node", "numa_node")
	protectedMin      = description("kubelet_memory_qos_node_memory_min_bytes", "Memory of Guaranteed pods, in bytes, that the kernel never reclaims (memory.min).")
	protectedLow      = description("kubelet_memory_qos_node_memory_low_bytes", "Memory of Burstable pods, in bytes, that the kernel reclaims last (memory.low).")
	pendingResizes    = description("kubelet_pod_pending_resizes", "Number of pods whose resize is deferred or infeasible, by reason and by class of priority.", "reason", "priority_bucket")
	resizingPods      = description("kubelet_pod_in_progress_resizes", "Number of pods that are being resized.")
	claimsInUse       = description("dra_resource_claims_in_use", "The number of prepared ResourceClaims by driver; <any> is that of all, since a claim may use several drivers.", "driver_name")
	podCertificates   = description("kubelet_podcertificate_states", "Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.", "signer_name", "state")
	logBytes          = description("kubelet_container_log_filesystem_used_bytes", "Bytes used by the container's logs on the filesystem.", "uid", "namespace", "pod", "container")
)

// volumeMetrics are the metrics of a volume with a claim.
var volumeMetrics = []struct {
	desc  *prometheus.Desc
	value func(*statsapi.VolumeStats) *uint64
}{
	{ofVolume("capacity_bytes", "Capacity in bytes of the volume"), func(v *statsapi.VolumeStats) *uint64 { return v.CapacityBytes }},
	{ofVolume("available_bytes", "Number of available bytes in the volume"), func(v *statsapi.VolumeStats) *uint64 { return v.AvailableBytes }},
	{ofVolume("used_bytes", "Number of used bytes in the volume"), func(v *statsapi.VolumeStats) *uint64 { return v.UsedBytes }},
	{ofVolume("inodes", "Maximum number of inodes in the volume"), func(v *statsapi.VolumeStats) *uint64 { return v.Inodes }},
	{ofVolume("inodes_free", "Number of free inodes in the volume"), func(v *statsapi.VolumeStats) *uint64 { return v.InodesFree }},
	{ofVolume("inodes_used", "Number of used inodes in the volume"), func(v *statsapi.VolumeStats) *uint64 { return v.InodesUsed }},
}

func ofVolume(name, help string) *prometheus.Desc {
	return description("kubelet_volume_stats_"+name, help, "namespace", "persistentvolumeclaim")
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(to chan<- prometheus.Metric) {
	s := c.state()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(runningPods, float64(s.RunningPods))
	for state, n := range s.Containers {
		gauge(runningContainers, float64(n), state)
	}
	for i, static := range []bool{false, true} {
		label := ""
		if static {
			label = strconv.FormatBool(static)
		}
		gauge(desiredPods, float64(s.DesiredPods[i]), label)
		gauge(activePods, float64(s.ActivePods[i]), label)
	}
	gauge(mirrorPods, float64(s.MirrorPods))
	gauge(ephemeral, float64(s.EphemeralContainers))
	for class, n := range s.WorkingPods {
		gauge(workingPods, float64(n), class.Lifecycle, class.Config, class.Static)
	}
	for state, byPlugin := range map[string]map[string]int{"actual_state_of_world": s.MountedVolumes, "desired_state_of_world": s.WantedVolumes} {
		for plugin, n := range byPlugin {
			gauge(totalVolumes, float64(n), plugin, state)
		}
	}
	gauge(sharedCPUs, float64(s.SharedCPUs*1000))
	gauge(exclusiveCPUs, float64(s.ExclusiveCPUs))
	for node, n := range s.ExclusiveCPUsOf {
		gauge(nodeCPUs, float64(n), strconv.Itoa(node))
	}
	for class, n := range s.PendingResizes {
		gauge(pendingResizes, float64(n), class.Reason, class.Priority)
	}
	gauge(resizingPods, float64(s.ResizingPods))
	gauge(protectedMin, float64(s.ProtectedMin))
	gauge(protectedLow, float64(s.ProtectedLow))
	for driver, n := range s.Claims {
		gauge(claimsInUse, float64(n), driver)
	}
	for class, n := range s.PodCertificates {
		gauge(podCertificates, float64(n), class.Signer, class.State)
	}
	gauge(clientTTL, math.Inf(1))
	if !s.ServerCertificate.IsZero() {
		gauge(serverTTL, s.ServerCertificate.Sub(s.Now).Seconds())
	}
	for _, l := range s.Logs {
		gauge(logBytes, float64(l.Bytes), l.UID, l.Namespace, l.Pod, l.Container)
	}
	seen := map[statsapi.PVCReference]bool{} // pods may share a claim
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if v.PVCRef == nil || seen[*v.PVCRef] {
			continue
		}
		seen[*v.PVCRef] = true
		for _, m := range volumeMetrics {
			if value := m.value(v); value != nil {
				gauge(m.desc, float64(*value), v.PVCRef.Namespace, v.PVCRef.Name)
			}
		}
	}
}
