// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"testing"
	"time"
)

// TestPullDefaults: pulls are limited only as a file says.
func TestPullDefaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "serialize false, parallel 0, QPS 0, burst 10",
		"serializeImagePulls: true":  "serialize true, parallel 0, QPS 0, burst 10",
		"serializeImagePulls: false": "serialize false, parallel 0, QPS 0, burst 10",
		"maxParallelImagePulls: 3":   "serialize false, parallel 3, QPS 0, burst 10",
		"maxParallelImagePulls: 1":   "serialize true, parallel 1, QPS 0, burst 10",
		"serializeImagePulls: false\nmaxParallelImagePulls: 1": "serialize false, parallel 1, QPS 0, burst 10",
		"serializeImagePulls: true\nmaxParallelImagePulls: 1":  "serialize true, parallel 1, QPS 0, burst 10",
		"registryPullQPS: 5":                    "serialize false, parallel 0, QPS 5, burst 10",
		"registryPullQPS: 5\nregistryBurst: 20": "serialize false, parallel 0, QPS 5, burst 20",
		"registryBurst: 20":                     "serialize false, parallel 0, QPS 0, burst 20",
	} {
		c, err := Parse([]byte(head + text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		parallel := int32(0)
		if c.MaxParallelImagePulls != nil {
			parallel = *c.MaxParallelImagePulls
		}
		got := fmt.Sprintf("serialize %t, parallel %d, QPS %d, burst %d", *c.SerializeImagePulls, parallel, *c.RegistryPullQPS, c.RegistryBurst)
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestGatedPeriods: the back-off of restarts and the period of quotas can be configured while their feature gates are enabled.
func TestGatedPeriods(t *testing.T) {
	const off = "\nfeatureGates: {KubeletCrashLoopBackOffMax: false, CustomCPUCFSQuotaPeriod: false}"
	for text, want := range map[string]string{
		"": "5m0s 100ms",
		"crashLoopBackOff: {maxContainerRestartPeriod: 1s}": "1s 100ms",
		"cpuCFSQuotaPeriod: 1s":                             "5m0s 1s",
		"cpuCFSQuotaPeriod: 1ms":                            "5m0s 1ms",
		"maxPods: 1" + off:                                  "none 100ms",
		"cpuCFSQuotaPeriod: 100ms" + off:                    "none 100ms",
	} {
		c, err := Parse([]byte(head + text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		restart := "none"
		if period := c.CrashLoopBackOff.MaxContainerRestartPeriod; period != nil {
			restart = period.Duration.String()
		}
		if got := restart + " " + c.CPUCFSQuotaPeriod.Duration.String(); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if maxRestartPeriod != 300*time.Second {
		t.Errorf("the default back-off is %v", maxRestartPeriod)
	}
}
