// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/image"
)

// TestConfigured: what a configuration file says about pulls, quotas and restarts is what the agent's parts get.
func TestConfigured(t *testing.T) {
	for _, test := range []struct {
		text    string
		pulls   image.Limits
		quota   criconfig.Quota
		longest time.Duration
	}{
		{"", image.Limits{Burst: 10}, criconfig.Quota{Period: 100 * time.Millisecond}, 5 * time.Minute},
		{"serializeImagePulls: true", image.Limits{Parallel: 1, Burst: 10}, criconfig.Quota{Period: 100 * time.Millisecond}, 5 * time.Minute},
		{
			"maxParallelImagePulls: 4\nregistryPullQPS: 6\nregistryBurst: 7\ncpuCFSQuota: false\ncrashLoopBackOff: {maxContainerRestartPeriod: 2s}",
			image.Limits{Parallel: 4, PerSecond: 6, Burst: 7}, criconfig.Quota{Off: true, Period: 100 * time.Millisecond}, 2 * time.Second,
		},
		{
			"cpuCFSQuotaPeriod: 5ms\nfeatureGates: {KubeletCrashLoopBackOffMax: false}",
			image.Limits{Burst: 10}, criconfig.Quota{Period: 5 * time.Millisecond}, 0,
		},
	} {
		c, err := config.Parse([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + test.text))
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		o := Options{Config: c}
		if diff := cmp.Diff(test.pulls, o.pullLimits()); diff != "" {
			t.Errorf("%q: pulls (-want +got):\n%s", test.text, diff)
		}
		if got := o.quota(); got != test.quota {
			t.Errorf("%q: %+v, want %+v", test.text, got, test.quota)
		}
		if got := o.maxRestartDelay(); got != test.longest {
			t.Errorf("%q: restarts after at most %v, want %v", test.text, got, test.longest)
		}
	}
}

// TestCheckCgroups: failCgroupV1 refuses cgroup v1 only.
func TestCheckCgroups(t *testing.T) {
	for _, test := range []struct{ fail, unified, refused bool }{
		{false, false, false}, {false, true, false}, {true, true, false}, {true, false, true},
	} {
		if err := checkCgroups(test.fail, test.unified); (err != nil) != test.refused {
			t.Errorf("failCgroupV1 %t, only cgroup v2 %t: %v", test.fail, test.unified, err)
		}
	}
}
