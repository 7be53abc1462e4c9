// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestQuota: containers, the sandbox and its overhead get the quota of the configured period, or none.
func TestQuota(t *testing.T) {
	for _, test := range []struct {
		quota Quota
		limit string
		want  string
	}{
		{Quota{}, "500m", "50000/100000"},
		{Quota{}, "1m", "1000/100000"},
		{Quota{}, "0", "0/100000"},
		{Quota{Period: 10 * time.Millisecond}, "500m", "5000/10000"},
		{Quota{Period: time.Second}, "1500m", "1500000/1000000"},
		{Quota{Period: time.Millisecond}, "100m", "1000/1000"},
		{Quota{Off: true}, "500m", "0/0"},
		{Quota{Off: true, Period: 10 * time.Millisecond}, "0", "0/0"},
	} {
		host := testHost
		host.Quota = test.quota
		limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse(test.limit)}
		pod := &v1.Pod{Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: limits}}},
			Overhead:   limits,
		}}
		sandbox, err := host.Sandbox(pod, 0, "", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, r := range map[string]*runtimeapi.LinuxContainerResources{
			"container": host.ContainerResources(pod, &pod.Spec.Containers[0]), "sandbox": sandbox.Linux.Resources, "overhead": sandbox.Linux.Overhead,
		} {
			if got := fmt.Sprintf("%d/%d", r.CpuQuota, r.CpuPeriod); got != test.want {
				t.Errorf("%+v, limit %s: the %s has %s, want %s", test.quota, test.limit, name, got, test.want)
			}
		}
	}
}
