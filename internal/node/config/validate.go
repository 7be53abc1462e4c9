// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/node/util/sysctl"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/cpus"
	"github.com/kindred-project/kindred/internal/node/eviction"
	"github.com/kindred-project/kindred/internal/node/image"
	"github.com/kindred-project/kindred/internal/node/memory"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// reservable are the resources of a node that can be reserved.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

// validate returns what is wrong with a configuration, or nil. The package that uses a field parses it; validate calls the
// same parser, so that a mistake is found at the start.
func validate(c *kubeletv1beta1.KubeletConfiguration) error {
	return errors.Join(
		atLeast("maxPods", int64(c.MaxPods), 0),
		atLeast("nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 1),
		atLeast("nodeStatusMaxImages", int64(*c.NodeStatusMaxImages), -1),
		atLeast("containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2),
		positiveQuantity("containerLogMaxSize", c.ContainerLogMaxSize),
		podLogsDir(c.PodLogsDir),
		imageGC(c),
		evictions(c),
		reserved("kubeReserved", c.KubeReserved),
		reserved("systemReserved", c.SystemReserved),
		reservedCPUs(c),
		checkManagers(c),
		enforced(c.EnforceNodeAllocatable),
		oomScore(*c.OOMScoreAdj),
		swapBehavior(c.MemorySwap.SwapBehavior),
		memoryQoS(c),
		idsPerPod(*c.UserNamespaces.IDsPerPod),
		positiveDuration("fileCheckFrequency", c.FileCheckFrequency.Duration),
		positiveDuration("httpCheckFrequency", c.HTTPCheckFrequency.Duration),
		webURL("staticPodURL", c.StaticPodURL),
		validateServer(c),
		validatePulls(c),
		quotaPeriod(c),
		restartPeriod(c),
		validateShutdown(c),
		cgroupDriver(c.CgroupDriver),
		cgroupRoot(c.CgroupRoot),
		unsafeSysctls(c.AllowedUnsafeSysctls),
	)
}

// sysctlPattern is the form of a sysctl's name, which may end with an asterisk.
var sysctlPattern = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`)

func unsafeSysctls(patterns []string) error {
	for _, pattern := range patterns {
		if len(pattern) > 253 || !sysctlPattern.MatchString(pattern) {
			return fmt.Errorf("allowedUnsafeSysctls: %q is not the name of a sysctl, which may end with *", pattern)
		}
		if namespace, _, _ := sysctl.GetNamespace(pattern); namespace == sysctl.UnknownNamespace {
			return fmt.Errorf("allowedUnsafeSysctls: %q is not in a namespace: pods can only have those of kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.* and user.*", pattern)
		}
	}
	return nil
}

// podLogsDir checks the directory of logs as CRI needs it: runtimes limit the characters of paths.
func podLogsDir(dir string) error {
	ascii := strings.IndexFunc(dir, func(r rune) bool { return r > unicode.MaxASCII }) < 0
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || !ascii {
		return fmt.Errorf("podLogsDir is %q, and must be an absolute path such as /var/log/pods, in ASCII characters and without . or .. in it", dir)
	}
	return nil
}

func evictions(c *kubeletv1beta1.KubeletConfiguration) error {
	_, err := eviction.Parse(c)
	return err
}

// reserved checks a reservation of the node's resources.
func reserved(field string, list map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity, err := resource.ParseQuantity(list[name])
		switch {
		case !slices.Contains(reservable, name):
			errs = append(errs, fmt.Errorf("%s has %q, and may have %s", field, name, strings.Join(reservable, ", ")))
		case err != nil || quantity.Sign() < 0:
			errs = append(errs, fmt.Errorf("%s[%s] is %q, and must be a quantity such as 100Mi", field, name, list[name]))
		}
	}
	return errors.Join(errs...)
}

// reservedCPUs checks reservedSystemCPUs.
func reservedCPUs(c *kubeletv1beta1.KubeletConfiguration) error {
	if _, err := cpuset.Parse(c.ReservedSystemCPUs); err != nil {
		return fmt.Errorf("reservedSystemCPUs is %q, and must be a list of CPUs such as 0-1,4: %w", c.ReservedSystemCPUs, err)
	}
	if c.ReservedSystemCPUs != "" && (c.SystemReservedCgroup != "" || c.KubeReservedCgroup != "") {
		return errors.New("reservedSystemCPUs can't be used with systemReservedCgroup or kubeReservedCgroup")
	}
	return nil
}

// checkManagers checks the policies that assign resources to containers.
func checkManagers(c *kubeletv1beta1.KubeletConfiguration) error {
	_, cpuErr := cpus.ParseOptions(c.CPUManagerPolicy, c.CPUManagerPolicyOptions)
	_, topologyErr := topology.ParsePolicy(c.TopologyManagerPolicy, c.TopologyManagerScope, c.TopologyManagerPolicyOptions)
	if c.CPUManagerReconcilePeriod.Duration <= 0 {
		cpuErr = errors.Join(cpuErr, fmt.Errorf("cpuManagerReconcilePeriod is %v, and must be positive", c.CPUManagerReconcilePeriod.Duration))
	}
	return errors.Join(cpuErr, topologyErr, memory.CheckPolicy(c.MemoryManagerPolicy))
}

// enforced checks which cgroups are limited. Those of the system and of Kubernetes' own processes are the administrator's.
func enforced(cgroups []string) error {
	for _, name := range cgroups {
		if name != "pods" && name != "none" {
			return fmt.Errorf("enforceNodeAllocatable has %q, and may have pods or none: other cgroups are not limited by the agent", name)
		}
	}
	if len(cgroups) > 1 && slices.Contains(cgroups, "none") {
		return errors.New("enforceNodeAllocatable has none, and must not have other values then")
	}
	return nil
}

func oomScore(value int32) error {
	if value < -1000 || value > 1000 {
		return fmt.Errorf("oomScoreAdj is %d, and must be from -1000 to 1000", value)
	}
	return nil
}

func atLeast(field string, value, minimum int64) error {
	if value < minimum {
		return fmt.Errorf("%s is %d, and must be at least %d", field, value, minimum)
	}
	return nil
}

// imageGC checks when images are removed.
func imageGC(c *kubeletv1beta1.KubeletConfiguration) error {
	high, low := *c.ImageGCHighThresholdPercent, *c.ImageGCLowThresholdPercent
	youngest, oldest := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
	switch {
	case high < 0 || high > 100:
		return fmt.Errorf("imageGCHighThresholdPercent is %d, and must be between 0 and 100", high)
	case low < 0 || low >= high:
		return fmt.Errorf("imageGCLowThresholdPercent is %d, and must be at least 0 and less than imageGCHighThresholdPercent, which is %d", low, high)
	case youngest < 0:
		return fmt.Errorf("imageMinimumGCAge is %v, and must not be negative", youngest)
	case oldest != 0 && oldest <= youngest:
		return fmt.Errorf("imageMaximumGCAge is %v, and must be 0 or greater than imageMinimumGCAge, which is %v", oldest, youngest)
	}
	return nil
}

func positiveDuration(field string, value time.Duration) error {
	if value <= 0 {
		return fmt.Errorf("%s is %v, and must be longer than 0s", field, value)
	}
	return nil
}

func swapBehavior(behavior string) error {
	switch behavior {
	case "", "NoSwap", "LimitedSwap":
		return nil
	}
	return fmt.Errorf("memorySwap.swapBehavior is %q, and must be NoSwap or LimitedSwap", behavior)
}

// memoryQoS checks the fields of the feature MemoryQoS.
func memoryQoS(c *kubeletv1beta1.KubeletConfiguration) error {
	var errs []error
	if f := c.MemoryThrottlingFactor; f != nil && (*f <= 0 || *f > 1) {
		errs = append(errs, fmt.Errorf("memoryThrottlingFactor is %v, and must be greater than 0 and at most 1", *f))
	}
	switch policy := c.MemoryReservationPolicy; {
	case policy != kubeletv1beta1.NoneMemoryReservationPolicy && policy != kubeletv1beta1.TieredReservationMemoryReservationPolicy:
		errs = append(errs, fmt.Errorf("memoryReservationPolicy is %q, and must be None or TieredReservation", policy))
	case policy == kubeletv1beta1.TieredReservationMemoryReservationPolicy && !MemoryQoS(c):
		errs = append(errs, errors.New("memoryReservationPolicy is TieredReservation, which needs the feature gate MemoryQoS"))
	}
	return errors.Join(errs...)
}

// MemoryQoS reports whether the feature gate MemoryQoS is enabled, as it is by default.
func MemoryQoS(c *kubeletv1beta1.KubeletConfiguration) bool { return isEnabled(c, "MemoryQoS") }

// PodsAPI reports whether the feature gate PodsAPI is enabled, as it is by default (KEP-4188).
func PodsAPI(c *kubeletv1beta1.KubeletConfiguration) bool { return isEnabled(c, "PodsAPI") }

// crashLoopBackOffMax reports whether the feature gate KubeletCrashLoopBackOffMax is enabled, as it is by default (KEP-4603).
func crashLoopBackOffMax(c *kubeletv1beta1.KubeletConfiguration) bool {
	return isEnabled(c, "KubeletCrashLoopBackOffMax")
}

// isEnabled reports whether a feature gate that is on by default is enabled.
func isEnabled(c *kubeletv1beta1.KubeletConfiguration, gate string) bool {
	enabled, set := c.FeatureGates[gate]
	return enabled || !set
}

// maxRestartPeriod is the greatest value, and the default, of crashLoopBackOff.maxContainerRestartPeriod.
const maxRestartPeriod = 5 * time.Minute

// restartPeriod checks the maximum of the back-off of restarts, in milliseconds as upstream.
func restartPeriod(c *kubeletv1beta1.KubeletConfiguration) error {
	const field = "crashLoopBackOff.maxContainerRestartPeriod"
	period := c.CrashLoopBackOff.MaxContainerRestartPeriod
	switch {
	case period == nil:
		return nil
	case !crashLoopBackOffMax(c):
		return fmt.Errorf("%s is %v, which needs the feature gate KubeletCrashLoopBackOffMax", field, period.Duration)
	case period.Milliseconds() < 1000 || period.Milliseconds() > maxRestartPeriod.Milliseconds():
		return fmt.Errorf("%s is %v, and must be from 1s to 300s", field, period.Duration)
	}
	return nil
}

// quotaPeriod checks the period of CPU quotas.
func quotaPeriod(c *kubeletv1beta1.KubeletConfiguration) error {
	period := c.CPUCFSQuotaPeriod.Duration
	switch {
	case !isEnabled(c, "CustomCPUCFSQuotaPeriod"):
		if period != 100*time.Millisecond {
			return fmt.Errorf("cpuCFSQuotaPeriod is %v, which needs the feature gate CustomCPUCFSQuotaPeriod", period)
		}
	case period < time.Millisecond || period > time.Second:
		return fmt.Errorf("cpuCFSQuotaPeriod is %v, and must be from 1ms to 1s", period)
	}
	return nil
}

// validatePulls checks the limits of image pulls, and who may use pulled images.
func validatePulls(c *kubeletv1beta1.KubeletConfiguration) error {
	_, err := image.NewVerification(c.ImagePullCredentialsVerificationPolicy, c.PreloadedImagesVerificationAllowlist)
	errs := []error{
		err,
		atLeast("registryBurst", int64(c.RegistryBurst), 0),
		atLeast("registryPullQPS", int64(*c.RegistryPullQPS), 0),
	}
	if parallel := c.MaxParallelImagePulls; parallel != nil {
		errs = append(errs, atLeast("maxParallelImagePulls", int64(*parallel), 1))
		if *parallel > 1 && *c.SerializeImagePulls {
			errs = append(errs, fmt.Errorf("maxParallelImagePulls is %d, and may be greater than 1 only if serializeImagePulls is false", *parallel))
		}
	}
	return errors.Join(errs...)
}

// idsPerPod checks userNamespaces.idsPerPod. Images use IDs of 16 bits, the kernel has IDs of 32.
func idsPerPod(ids int64) error {
	const unit = 1 << 16
	if ids < unit || ids%unit != 0 || ids > math.MaxUint32 {
		return fmt.Errorf("userNamespaces.idsPerPod is %d, and must be a multiple of %d and less than %d", ids, unit, int64(math.MaxUint32))
	}
	return nil
}

// webURL returns an error for a value that is neither empty nor the URL of a web server.
func webURL(field, value string) error {
	if value == "" {
		return nil
	}
	if u, err := url.Parse(value); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s is %q, and must be a URL such as https://example.com/pods.yaml", field, value)
	}
	return nil
}

func positiveQuantity(field, value string) error {
	if quantity, err := resource.ParseQuantity(value); err != nil || quantity.Sign() <= 0 {
		return fmt.Errorf("%s is %q, and must be a positive quantity such as 10Mi", field, value)
	}
	return nil
}

// validateShutdown checks the periods of a graceful shutdown, of which upstream allows two forms.
func validateShutdown(c *kubeletv1beta1.KubeletConfiguration) error {
	total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	for field, period := range map[string]time.Duration{"shutdownGracePeriod": total, "shutdownGracePeriodCriticalPods": critical} {
		if period != 0 && period < time.Second {
			return fmt.Errorf("%s is %v, and must be 0 or at least 1s", field, period)
		}
	}
	for _, p := range c.ShutdownGracePeriodByPodPriority {
		if p.ShutdownGracePeriodSeconds < 0 {
			return fmt.Errorf("shutdownGracePeriodByPodPriority has %d seconds for priority %d, and must have at least 0", p.ShutdownGracePeriodSeconds, p.Priority)
		}
	}
	switch {
	case critical > total:
		return fmt.Errorf("shutdownGracePeriodCriticalPods is %v, and may be at most shutdownGracePeriod, which is %v", critical, total)
	case total > 0 && len(c.ShutdownGracePeriodByPodPriority) > 0:
		return errors.New("shutdownGracePeriod and shutdownGracePeriodByPodPriority are both set, and only one of them may be")
	}
	return nil
}

// cgroupDriver checks which program creates cgroups.
func cgroupDriver(driver string) error {
	if driver != "cgroupfs" && driver != "systemd" {
		return fmt.Errorf("cgroupDriver is %q, and must be cgroupfs or systemd", driver)
	}
	return nil
}

// cgroupRoot checks the cgroup that has that of pods.
func cgroupRoot(root string) error {
	if root != "" && (!path.IsAbs(root) || path.Clean(root) != root) {
		return fmt.Errorf("cgroupRoot is %q, and must be the absolute path of a cgroup such as / or /nodes, without . or .. in it", root)
	}
	return nil
}
