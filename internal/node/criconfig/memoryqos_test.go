// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func memoryPod(request, limit string, ofPod *v1.ResourceRequirements) *v1.Pod {
	list := func(amount string) v1.ResourceList {
		if amount == "" {
			return nil
		}
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(amount), v1.ResourceCPU: resource.MustParse("1")}
	}
	return &v1.Pod{Spec: v1.PodSpec{Resources: ofPod, Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list(request), Limits: list(limit)}}}}}
}

func TestMemoryQoS(t *testing.T) {
	const page = 4096
	ofPod := &v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Ki")},
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("200Ki")},
	}
	base := MemoryQoS{Unified: true, Enabled: true, PageSize: page, Allocatable: func() int64 { return 1000 * page }}
	with := func(change func(*MemoryQoS)) MemoryQoS {
		q := base
		change(&q)
		return q
	}
	throttles := with(func(q *MemoryQoS) { q.Factor = 0.9 })
	reserves := with(func(q *MemoryQoS) { q.Reserve = true })
	type settings = map[string]string
	for name, test := range map[string]struct {
		qos            MemoryQoS
		pod            *v1.Pod
		container, all settings
	}{
		"cgroup v1":                     {MemoryQoS{}, memoryPod("40Ki", "80Ki", nil), nil, nil},
		"disabled":                      {with(func(q *MemoryQoS) { q.Enabled = false }), memoryPod("40Ki", "80Ki", nil), settings{"memory.high": "max"}, nil},
		"defaults":                      {base, memoryPod("40Ki", "80Ki", nil), settings{"memory.min": "0", "memory.low": "0"}, settings{}},
		"throttled":                     {throttles, memoryPod("40Ki", "80Ki", nil), settings{"memory.min": "0", "memory.low": "0", "memory.high": "77824"}, settings{}}, // 76 KiB
		"throttled by a factor of 1":    {with(func(q *MemoryQoS) { q.Factor = 1 }), memoryPod("40Ki", "80Ki", nil), settings{"memory.min": "0", "memory.low": "0", "memory.high": "81920"}, settings{}},
		"throttled without a limit":     {throttles, memoryPod("400Ki", "", nil), settings{"memory.min": "0", "memory.low": "0", "memory.high": "3727360"}, settings{}}, // 910 pages
		"throttled without anything":    {throttles, memoryPod("", "", nil), settings{"memory.min": "0", "memory.low": "0", "memory.high": "3686400"}, settings{}},      // 900 pages
		"allocatable memory is unknown": {with(func(q *MemoryQoS) { q.Factor, q.Allocatable = 0.9, func() int64 { return 0 } }), memoryPod("", "", nil), settings{"memory.min": "0", "memory.low": "0"}, settings{}},
		"guaranteed, not throttled":     {throttles, memoryPod("80Ki", "80Ki", nil), settings{"memory.min": "0", "memory.low": "0"}, settings{}},
		"less than a page to throttle":  {throttles, memoryPod("80Ki", "81Ki", nil), settings{"memory.min": "0", "memory.low": "0"}, settings{}},
		"guaranteed, protected":         {reserves, memoryPod("80Ki", "80Ki", nil), settings{"memory.min": "81920"}, settings{"memory.min": "81920"}},
		"burstable, protected":          {reserves, memoryPod("40Ki", "80Ki", nil), settings{"memory.low": "40960"}, settings{"memory.low": "40960"}},
		"best effort, not protected":    {reserves, memoryPod("", "", nil), settings{"memory.min": "0", "memory.low": "0"}, settings{}},
		"the pod's limit": {with(func(q *MemoryQoS) { q.Reserve, q.Factor = true, 0.5 }), memoryPod("", "", ofPod),
			settings{"memory.min": "0", "memory.low": "0"}, settings{"memory.low": "102400", "memory.high": "151552"}}, // 148 KiB
	} {
		if diff := cmp.Diff(test.container, test.qos.container(test.pod, &test.pod.Spec.Containers[0])); diff != "" {
			t.Errorf("%s, container (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.all, test.qos.Pod(test.pod)); diff != "" {
			t.Errorf("%s, pod (-want +got):\n%s", name, diff)
		}
	}
	pods, burstable := reserves.Classes(100, 20)
	if diff := cmp.Diff([]settings{{"memory.min": "120", "memory.low": "20"}, {"memory.low": "20"}}, []settings{pods, burstable}); diff != "" {
		t.Errorf("classes: %s", diff)
	}
	pods, burstable = base.Classes(100, 20)
	if diff := cmp.Diff([]settings{{"memory.min": "0", "memory.low": "0"}, {"memory.low": "0"}}, []settings{pods, burstable}); diff != "" {
		t.Errorf("classes without protection: %s", diff)
	}
}

// TestMemoryQoSIsApplied: the settings of swap and of memory are both in what the runtime gets.
func TestMemoryQoSIsApplied(t *testing.T) {
	pod := memoryPod("40Ki", "80Ki", nil)
	host := Host{Memory: 1 << 30, Swap: Swap{Controlled: true, Unified: true}, MemoryQoS: MemoryQoS{Unified: true, Enabled: true, Reserve: true, PageSize: 4096}}
	got := host.ContainerResources(pod, &pod.Spec.Containers[0]).Unified
	if diff := cmp.Diff(map[string]string{"memory.swap.max": "0", "memory.low": "40960"}, got); diff != "" {
		t.Error(diff)
	}
}
