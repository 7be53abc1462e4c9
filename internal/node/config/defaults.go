// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// evictionHard are the default thresholds of hard eviction. Upstream's are 10 % of the node's file system and 15 % of that of
// images, which is much on the large disk of a machine that people use for other things as well; see docs/differences.md.
var evictionHard = map[string]string{
	"memory.available":   "100Mi",
	"nodefs.available":   "5%",
	"nodefs.inodesFree":  "5%",
	"imagefs.available":  "5%",
	"imagefs.inodesFree": "5%",
}

// setDefaults sets the fields that are not set to upstream's documented defaults, except where a comment says otherwise.
func setDefaults(c *kubeletv1beta1.KubeletConfiguration) {
	setServerDefaults(c)
	setPodDefaults(c)
	setResourceDefaults(c)
	setDefault(&c.NodeStatusUpdateFrequency, 10*time.Second)
	setDefault(&c.NodeStatusReportFrequency, 5*time.Minute)
	set(&c.NodeLeaseDurationSeconds, 40)
	set(&c.RegisterNode, ptr.To(true))
	setDefault(&c.RuntimeRequestTimeout, 2*time.Minute)
	set(&c.NodeStatusMaxImages, ptr.To[int32](50))
	set(&c.FailCgroupV1, ptr.To(false)) // upstream: true; both versions of cgroups are supported
	set(&c.FailSwapOn, ptr.To(false))   // upstream: true; many machines that are not only nodes have swap
	set(&c.ContentType, "application/vnd.kubernetes.protobuf")
}

func setServerDefaults(c *kubeletv1beta1.KubeletConfiguration) {
	set(&c.EnableServer, ptr.To(true))
	set(&c.Port, 10250)
	set(&c.Authentication.Anonymous.Enabled, ptr.To(false))
	set(&c.Authentication.Webhook.Enabled, ptr.To(true))
	setDefault(&c.Authentication.Webhook.CacheTTL, 2*time.Minute)
	set(&c.Authorization.Mode, kubeletv1beta1.KubeletAuthorizationModeWebhook)
	setDefault(&c.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	setDefault(&c.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	set(&c.EnableDebuggingHandlers, ptr.To(true))
	set(&c.HealthzPort, ptr.To[int32](10248))
	set(&c.HealthzBindAddress, "127.0.0.1")
	setDefault(&c.StreamingConnectionIdleTimeout, 4*time.Hour)
	set(&c.EnableSystemLogHandler, ptr.To(true))
	set(&c.EnableSystemLogQuery, ptr.To(false))
	set(&c.EnableProfilingHandler, ptr.To(true))
	set(&c.EnableDebugFlagsHandler, ptr.To(true))
}

func setPodDefaults(c *kubeletv1beta1.KubeletConfiguration) {
	setDefault(&c.SyncFrequency, time.Minute)
	setDefault(&c.FileCheckFrequency, 20*time.Second)
	setDefault(&c.HTTPCheckFrequency, 20*time.Second)
	set(&c.ClusterDomain, "cluster.local")
	set(&c.MaxPods, 110)
	set(&c.PodPidsLimit, ptr.To[int64](-1))
	set(&c.PodLogsDir, "/var/log/pods")
	set(&c.ContainerLogMaxSize, "10Mi")
	set(&c.ContainerLogMaxFiles, ptr.To[int32](5))
	set(&c.ContainerLogMaxWorkers, ptr.To[int32](1))
	if c.ContainerLogMonitorInterval == nil {
		c.ContainerLogMonitorInterval = &metav1.Duration{Duration: 10 * time.Second}
	}
	setPullDefaults(c)
	set(&c.SeccompDefault, ptr.To(false))
	if c.CrashLoopBackOff.MaxContainerRestartPeriod == nil && crashLoopBackOffMax(c) {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: maxRestartPeriod}
	}
	set(&c.ConfigMapAndSecretChangeDetectionStrategy, kubeletv1beta1.WatchChangeDetectionStrategy)
	set(&c.EnableControllerAttachDetach, ptr.To(true))
	setDefault(&c.VolumeStatsAggPeriod, time.Minute)
	if c.UserNamespaces == nil {
		c.UserNamespaces = &kubeletv1beta1.UserNamespaces{}
	}
	set(&c.UserNamespaces.IDsPerPod, ptr.To[int64](65536))
}

// setPullDefaults leaves pulls in parallel and without a limit unless a file limits them. Upstream pulls one image at a time by
// default, and at most 5 images in a second.
func setPullDefaults(c *kubeletv1beta1.KubeletConfiguration) {
	isOne := c.MaxParallelImagePulls != nil && *c.MaxParallelImagePulls < 2
	set(&c.SerializeImagePulls, &isOne)
	set(&c.RegistryPullQPS, ptr.To[int32](0))
	set(&c.RegistryBurst, 10)
	set(&c.ImagePullCredentialsVerificationPolicy, kubeletv1beta1.NeverVerifyPreloadedImages)
}

func setResourceDefaults(c *kubeletv1beta1.KubeletConfiguration) {
	setDefault(&c.ImageMinimumGCAge, 2*time.Minute)
	set(&c.ImageGCHighThresholdPercent, ptr.To[int32](85))
	set(&c.ImageGCLowThresholdPercent, ptr.To[int32](80))
	set(&c.CgroupsPerQOS, ptr.To(true))
	set(&c.CgroupDriver, "cgroupfs")
	set(&c.CPUManagerPolicy, "none")
	setDefault(&c.CPUManagerReconcilePeriod, 10*time.Second)
	set(&c.MemoryManagerPolicy, kubeletv1beta1.NoneMemoryManagerPolicy)
	set(&c.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy)
	set(&c.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope)
	set(&c.CPUCFSQuota, ptr.To(true))
	if c.CPUCFSQuotaPeriod == nil {
		c.CPUCFSQuotaPeriod = &metav1.Duration{Duration: 100 * time.Millisecond}
	}
	if c.EvictionHard == nil {
		c.EvictionHard = maps.Clone(evictionHard)
	}
	set(&c.MergeDefaultEvictionSettings, ptr.To(false))
	if *c.MergeDefaultEvictionSettings {
		for signal, value := range evictionHard {
			if _, ok := c.EvictionHard[signal]; !ok {
				c.EvictionHard[signal] = value
			}
		}
	}
	setDefault(&c.EvictionPressureTransitionPeriod, 5*time.Minute)
	set(&c.LocalStorageCapacityIsolation, ptr.To(true))
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
	set(&c.MemoryReservationPolicy, kubeletv1beta1.NoneMemoryReservationPolicy)
	set(&c.OOMScoreAdj, ptr.To[int32](-999))
	if c.RegisterWithTaints == nil {
		c.RegisterWithTaints = []v1.Taint{}
	}
	if c.FeatureGates == nil {
		c.FeatureGates = map[string]bool{}
	}
}

// set sets a field that has its zero value.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setDefault(field *metav1.Duration, value time.Duration) { set(&field.Duration, value) }
