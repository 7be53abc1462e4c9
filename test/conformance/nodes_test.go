// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestUsable(t *testing.T) {
	ready := v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
	pressed := []v1.Taint{{Key: v1.TaintNodeDiskPressure, Effect: v1.TaintEffectNoSchedule}}
	for name, test := range map[string]struct {
		nodes []v1.Node
		want  string
	}{
		"ready":          {nodes: []v1.Node{{Status: ready}}},
		"not ready":      {nodes: []v1.Node{{Status: ready}, {}}, want: "conditions []"},
		"under pressure": {nodes: []v1.Node{{Status: ready, Spec: v1.NodeSpec{Taints: pressed}}}, want: v1.TaintNodeDiskPressure},
		"cordoned":       {nodes: []v1.Node{{Status: ready, Spec: v1.NodeSpec{Unschedulable: true}}}, want: "node"},
		"preferred less": {nodes: []v1.Node{{Status: ready, Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectPreferNoSchedule}}}}}},
	} {
		err := usable(test.nodes)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
