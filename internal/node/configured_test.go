// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestRealQuota: the kernel has the quota and the period of the configuration, for a pod and for its container, or no quota.
func TestRealQuota(t *testing.T) {
	b := newBed(t)
	for _, test := range []struct {
		name          string
		enforced      bool
		period        time.Duration
		quota, length int64
	}{
		{"short", true, 10 * time.Millisecond, 5000, 10000},
		{"long", true, time.Second, 500000, 1000000},
		{"none", false, 10 * time.Millisecond, -1, 0},
	} {
		b.options.Config.CPUCFSQuota, b.options.Config.CPUCFSQuotaPeriod = &test.enforced, &metav1.Duration{Duration: test.period}
		b.start()
		limited := busybox("c", exitOnTERM)
		limited.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("32Mi")}
		limited.Resources.Requests = limited.Resources.Limits
		b.create(podOf(test.name, limited))
		p := b.until(test.name, "ready", podReady)
		id := p.Status.ContainerStatuses[0].ContainerID
		container, err := b.agent.cgroups.ContainerPath(b.agent.cgroups.Path(p), id[strings.LastIndex(id, "/")+1:])
		if err != nil {
			t.Fatal(err)
		}
		for what, path := range map[string]string{"pod": b.agent.cgroups.Path(p), "container": container} {
			got := b.agent.cgroups.Limits(path)
			if got.CPUQuota != test.quota || test.length != 0 && got.CPUPeriod != test.length {
				t.Errorf("%s: the cgroup of the %s has a quota of %d in %d µs, want %d in %d", test.name, what, got.CPUQuota, got.CPUPeriod, test.quota, test.length)
			}
		}
		b.delete(test.name)
		b.stop()
	}
}

// TestRealRestarts: a container that crashes restarts after the configured maximum, which is less than the usual first delay.
func TestRealRestarts(t *testing.T) {
	b := newBed(t)
	b.options.Config.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: time.Second}
	b.start()
	defer func() { b.stop() }()
	begin := time.Now()
	b.create(podOf("crashing", busybox("c", "exit 1")))
	b.until("crashing", "restarted four times", func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount >= 4
	})
	// The first restart has no delay.
	if took := time.Since(begin); took < 3*time.Second {
		t.Errorf("four restarts took %v, want at least 3 s", took)
	}
	b.delete("crashing")
}
