// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestCheckResize(t *testing.T) {
	pod := func(cpu, memory string) *v1.Pod {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
		c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: list}}
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
	}
	restarting := func(p *v1.Pod) *v1.Pod {
		p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
		return p
	}
	always := func(swaps bool) func(*v1.Pod, *v1.Container) bool {
		return func(*v1.Pod, *v1.Container) bool { return swaps }
	}
	for name, test := range map[string]struct {
		rules      ResizeRules
		have, want *v1.Pod
		message    string
	}{
		"plain node":               {ResizeRules{}, pod("1", "1Gi"), pod("2", "2Gi"), ""},
		"swap":                     {ResizeRules{Swaps: always(true)}, pod("1", "1Gi"), pod("1", "2Gi"), "In-place resize of containers with swap is not supported."},
		"swap, CPU":                {ResizeRules{Swaps: always(true)}, pod("1", "1Gi"), pod("2", "1Gi"), ""},
		"swap, container restarts": {ResizeRules{Swaps: always(true)}, restarting(pod("1", "1Gi")), restarting(pod("1", "2Gi")), ""},
	} {
		if test.rules.Swaps == nil {
			test.rules.Swaps = always(false)
		}
		refusal := test.rules.CheckResize(test.want, test.have)
		got := ""
		if refusal != nil {
			got = refusal.Message
			if refusal.Reason != v1.PodReasonInfeasible {
				t.Errorf("%s: reason %s", name, refusal.Reason)
			}
			if refusal.Detail != "swap_limitation" {
				t.Errorf("%s: detail %s", name, refusal.Detail)
			}
		}
		if got != test.message {
			t.Errorf("%s: %q, want %q", name, got, test.message)
		}
	}
}
