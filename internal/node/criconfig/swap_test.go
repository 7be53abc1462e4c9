// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestSwap(t *testing.T) {
	limited := Swap{Controlled: true, Unified: true, Limited: true, Capacity: 1 << 30}
	pod := func(request, limit string) *v1.Pod {
		p := testPod()
		r := &p.Spec.Containers[0].Resources
		r.Requests, r.Limits = v1.ResourceList{}, v1.ResourceList{}
		if request != "" {
			r.Requests[v1.ResourceMemory] = resource.MustParse(request)
		}
		if limit != "" {
			r.Limits[v1.ResourceMemory] = resource.MustParse(limit)
		}
		return p
	}
	critical := pod("256Mi", "")
	critical.Spec.Priority = new(int32(systemCritical))
	static := pod("256Mi", "")
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	with := func(change func(*Swap)) Swap {
		s := limited
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		swap Swap
		pod  *v1.Pod
		want string // unified limit, and the one of version 1
	}{
		"burstable":             {limited, pod("256Mi", ""), "268435456 0"},
		"burstable, limited":    {limited, pod("512Mi", "768Mi"), "536870912 0"},
		"best effort":           {limited, pod("", ""), "0 0"},
		"request is limit":      {limited, pod("256Mi", "256Mi"), "0 0"},
		"more than the node":    {limited, pod("2Gi", ""), "0 0"},
		"critical":              {limited, critical, "0 0"},
		"static":                {limited, static, "0 0"},
		"NoSwap":                {with(func(s *Swap) { s.Limited = false }), pod("256Mi", ""), "0 0"},
		"version 1":             {with(func(s *Swap) { s.Unified = false }), pod("256Mi", "512Mi"), " 536870912"},
		"kernel without limits": {with(func(s *Swap) { s.Controlled = false }), pod("256Mi", "512Mi"), " 0"},
	} {
		h := testHost
		h.Swap = test.swap
		got := h.ContainerResources(test.pod, &test.pod.Spec.Containers[0])
		if text := fmt.Sprintf("%s %d", got.Unified[cgroup2MaxSwap], got.MemorySwapLimitInBytes); text != test.want {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}

func TestHugepageLimits(t *testing.T) {
	p := testPod()
	p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{
		"hugepages-2Mi": resource.MustParse("8Mi"), "hugepages-1Gi": resource.MustParse("2Gi"),
	}}
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}
	h := testHost
	h.PageSizes = []int64{1 << 30, 2 << 20, 64 << 10}
	var got string
	for _, l := range h.ContainerResources(p, &p.Spec.Containers[0]).HugepageLimits {
		got += fmt.Sprintf("%s=%d ", l.PageSize, l.Limit)
	}
	if want := "64KB=0 2MB=4194304 1GB=2147483648 "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
