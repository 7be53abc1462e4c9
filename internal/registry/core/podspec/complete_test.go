// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

func TestCompleteSelectors(t *testing.T) {
	pod := validPod()
	pod.Labels = map[string]string{"version": "2", "app": "web"}
	pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		LabelSelector:     &metav1.LabelSelector{},
		TopologyKey:       "zone",
		MatchLabelKeys:    []string{"version", "missing"},
		MismatchLabelKeys: []string{"app"},
	}}}}
	pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"version"}},
		{MaxSkew: 1, TopologyKey: "node", WhenUnsatisfiable: v1.DoNotSchedule},
	}
	if warnings := Complete(pod); warnings != nil {
		t.Errorf("warnings: %q", warnings)
	}
	version := metav1.LabelSelectorRequirement{Key: "version", Operator: metav1.LabelSelectorOpIn, Values: []string{"2"}}
	want := []metav1.LabelSelectorRequirement{version, {Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}
	got := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("anti-affinity (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]metav1.LabelSelectorRequirement{version}, pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions); diff != "" {
		t.Errorf("spread (-want +got):\n%s", diff)
	}
	if pod.Spec.TopologySpreadConstraints[1].LabelSelector != nil {
		t.Error("a nil selector, which matches nothing, got requirements")
	}
	checktest.Diff(t, nil, check.Run(func(c *check.Checker) { ValidatePodCreate(c, pod) }))
}

func TestCompleteAppArmor(t *testing.T) {
	const key = v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	const warning = `: deprecated since v1.30; use the "appArmorProfile" field instead`
	pod := validPod()
	pod.Spec.SecurityContext.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	pod.Spec.Containers = []v1.Container{container("same"), container("other"), container("bad"), container("none")}
	pod.Annotations = map[string]string{key + "same": "unconfined", key + "other": "localhost/p", key + "bad": "best"}
	want := []string{
		"metadata.annotations[" + key + "other]" + warning,
		"metadata.annotations[" + key + "bad]" + warning,
	}
	if diff := cmp.Diff(want, Complete(pod)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	for i, want := range []*v1.SecurityContext{
		nil,
		{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("p")}},
		nil,
		nil,
	} {
		if diff := cmp.Diff(want, pod.Spec.Containers[i].SecurityContext); diff != "" {
			t.Errorf("%s (-want +got):\n%s", pod.Spec.Containers[i].Name, diff)
		}
	}
}

func TestDropAlphaFields(t *testing.T) {
	probe := func(protocol *v1.HTTPProtocol) *v1.Probe {
		return &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Protocol: protocol}}}
	}
	pod, want := validPod(), validPod()
	pod.Spec.EvictionResponders = []v1.EvictionResponder{{Name: "example.com/a"}}
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
	pod.Spec.Containers[0].LivenessProbe = probe(new(v1.HTTPProtocolHTTP2))
	want.Spec.Containers[0].LivenessProbe = probe(nil)
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", BindMountOptions: []string{"noexec"}}}
	want.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data"}}
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: new(v1.SIGUSR1)}
	pod.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Mode: new(int32(0o1777))}}},
		{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultUser: new(int64(1)), Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", User: new(int64(1))}},
		}}}},
	}
	want.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}}},
	}
	pod.Status.VolumeHealth = []v1.PodVolumeHealth{{Name: "data"}}
	DropAlphaFields(t.Context(), pod, nil)
	if diff := cmp.Diff(want, pod); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestSchedulingGroupIsKeptIfServedOrStored(t *testing.T) {
	group := &v1.PodSchedulingGroup{PodGroupName: new("g")}
	member := &v1.Pod{Spec: v1.PodSpec{SchedulingGroup: group}}
	for name, test := range map[string]struct {
		ctx  context.Context
		old  *v1.Pod
		want *v1.PodSchedulingGroup
	}{
		"not served": {t.Context(), nil, nil},
		"served":     {generic.WithGangs(t.Context()), nil, group},
		"stored":     {t.Context(), member, group},
		"not stored": {t.Context(), &v1.Pod{}, nil},
	} {
		pod := member.DeepCopy()
		DropAlphaFields(test.ctx, pod, test.old)
		if diff := cmp.Diff(test.want, pod.Spec.SchedulingGroup); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		template := &v1.PodTemplate{Template: v1.PodTemplateSpec{Spec: member.DeepCopy().Spec}}
		var old *v1.PodTemplate
		if test.old != nil {
			old = &v1.PodTemplate{Template: v1.PodTemplateSpec{Spec: test.old.Spec}}
		}
		DropAlphaTemplateFields(test.ctx, template, old, func(t *v1.PodTemplate) *v1.PodTemplateSpec { return &t.Template })
		if diff := cmp.Diff(test.want, template.Template.Spec.SchedulingGroup); diff != "" {
			t.Errorf("%s, template (-want +got):\n%s", name, diff)
		}
	}
}
