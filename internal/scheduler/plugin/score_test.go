// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

func TestScores(t *testing.T) {
	const gib = 1024 * mebibyte
	preferSSD := affine(v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
		{Weight: 4, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: v1.NodeSelectorOpIn, Values: []string{"ssd"}}}}},
		{Weight: 1, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: v1.NodeSelectorOpExists}}}},
	}}})
	preferred := func(weight int32) []v1.WeightedPodAffinityTerm {
		return []v1.WeightedPodAffinityTerm{{Weight: weight, PodAffinityTerm: v1.PodAffinityTerm{
			TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		}}}
	}
	softZone := spread(v1.TopologySpreadConstraint{TopologyKey: "zone", MaxSkew: 1, WhenUnsatisfiable: v1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}})
	a := labelled("app", "a")

	for _, tt := range []struct {
		name    string
		score   Score
		cluster []on
		pod     *model.Pod
		want    []int64
	}{
		{"fewer untolerated taints", taints{}, []on{
			{node: node("a", taint("x", v1.TaintEffectPreferNoSchedule), taint("y", v1.TaintEffectPreferNoSchedule))},
			{node: node("b", taint("x", v1.TaintEffectPreferNoSchedule))},
			{node: node("c")},
		}, pod(), []int64{0, 50, 100}},
		{"preferred nodes", nodeAffinity{}, []on{
			{node: node("a", nodeLabel("disk", "ssd"))}, {node: node("b", nodeLabel("disk", "hdd"))}, {node: node("c")},
		}, pod(preferSSD), []int64{100, 20, 0}},
		{"fewer requests", leastAllocated{}, []on{
			{node: node("a")},
			{node("b"), []*model.Pod{pod(requests("cpu", "2", "memory", "4Gi"))}},
		}, pod(requests("cpu", "1", "memory", "2Gi")), []int64{75, 25}},
		{"a pod without requests counts with assumed ones", leastAllocated{}, []on{
			{node: node("a", allocatable("cpu", "1", "memory", "2000Mi"))},
			{node("b", allocatable("cpu", "1", "memory", "2000Mi")), []*model.Pod{pod()}},
		}, pod(), []int64{90, 80}},
		{"balance", balancedAllocation{}, []on{
			{node("cpu taken"), []*model.Pod{pod(requests("cpu", "2"))}},
			{node("memory taken"), []*model.Pod{pod(requests("memory", "4Gi"))}},
		}, pod(requests("cpu", "2")), []int64{62, 87}},
		{"balance without requests", balancedAllocation{}, []on{{node("cpu taken"), []*model.Pod{pod(requests("cpu", "2"))}}}, pod(), []int64{0}},
		{"images", imageLocality{}, []on{
			{node: node("a", image("image:latest", gib))}, {node: node("b")},
		}, pod(), []int64{50, 0}},
		{"small images", imageLocality{}, []on{{node: node("a", image("image:latest", mebibyte))}}, pod(), []int64{0}},
		{"siblings apart", topologySpread{}, []on{
			{node("a"), []*model.Pod{pod(ownedBy("rs")), pod(ownedBy("rs"))}}, {node("b"), []*model.Pod{pod(ownedBy("rs"))}}, {node: node("c")},
		}, pod(ownedBy("rs")), []int64{40, 60, 100}},
		{"terminating siblings do not count", topologySpread{}, []on{
			{node("a"), []*model.Pod{pod(ownedBy("rs"), leaving)}}, {node: node("b")},
		}, pod(ownedBy("rs")), []int64{100, 100}},
		{"an orphan has no siblings", topologySpread{}, []on{{node("a"), []*model.Pod{pod()}}}, pod(), []int64{0}},
		{"zones apart, nodes without a zone last", topologySpread{}, []on{
			{node("a", nodeLabel("zone", "z1")), []*model.Pod{pod(a), pod(a)}},
			{node: node("b", nodeLabel("zone", "z1"))},
			{node: node("c", nodeLabel("zone", "z2"))},
			{node: node("d")},
		}, pod(a, softZone), []int64{0, 0, 100, 0}},
		{"preferred affinity", podAffinity{}, []on{{node("a"), []*model.Pod{pod(a)}}, {node: node("b")}},
			pod(affine(v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred(1)}})), []int64{100, 0}},
		{"preferred anti-affinity", podAffinity{}, []on{{node("a"), []*model.Pod{pod(a)}}, {node: node("b")}},
			pod(affine(v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred(1)}})), []int64{0, 100}},
		{"preferred affinity of an existing pod", podAffinity{}, []on{
			{node("a"), []*model.Pod{pod(affine(v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred(1)}}))}},
			{node: node("b")},
		}, pod(a), []int64{100, 0}},
	} {
		t.Run(tt.score.Name()+"/"+tt.name, func(t *testing.T) {
			c := clusterOf(tt.cluster...)
			got := make([]int64, len(c.Nodes()))
			tt.score.Score(c, tt.pod, c.Nodes(), got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("scores (-want +got):\n%s", diff)
			}
		})
	}
}
