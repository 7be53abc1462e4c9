// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1.Pod)
		want   []string
	}{
		"a valid pod": {change: func(*v1.Pod) {}},
		"deprecated labels": {
			change: spec(func(spec *v1.PodSpec) { spec.NodeSelector = map[string]string{"beta.kubernetes.io/os": "linux"} }),
			want:   []string{`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		},
		"null selectors": {
			change: spec(func(spec *v1.PodSpec) {
				spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{TopologyKey: "zone"}}
				spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{}}}}
			}),
			want: []string{
				`spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod`,
				`spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod`,
			},
		},
		"deprecated volumes": {
			change: withVolume(v1.VolumeSource{RBD: &v1.RBDVolumeSource{}}),
			want:   []string{`spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+`},
		},
		"overlapping paths": {
			change: withVolume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Items: []v1.KeyToPath{{Path: "a"}}}},
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "a/b"}},
				{},
			}}}),
			want: []string{
				`volume "data" (Projected) has no sources provided`,
				`volume "data" (Projected): overlapping paths: "a/b" (ServiceAccountToken) with "a" (ConfigMap "c")`,
			},
		},
		"duplicate entries": {
			change: spec(func(spec *v1.PodSpec) {
				spec.HostAliases = []v1.HostAlias{{IP: "1.2.3.4"}, {IP: "1.2.3.4"}}
				spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "a"}, {Name: "a"}, {}}
				spec.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "$(A)2"}, {Name: "A", Value: "3"}}
			}),
			want: []string{
				`spec.hostAliases[1].ip: duplicate ip "1.2.3.4"`,
				`spec.imagePullSecrets[1].name: duplicate name "a"`,
				`spec.imagePullSecrets[2].name: invalid empty name ""`,
				`spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply`,
			},
		},
		"fractions of a byte": {
			change: first(func(c *v1.Container) { c.Resources.Limits = list("memory", "100m") }),
			want:   []string{`spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer`},
		},
		"overlapping ports": {
			change: first(func(c *v1.Container) {
				c.Ports = []v1.ContainerPort{
					{Name: "http", ContainerPort: 80, HostPort: 80, Protocol: v1.ProtocolTCP},
					{Name: "http", ContainerPort: 80, HostPort: 80, HostIP: "1.2.3.4", Protocol: v1.ProtocolTCP},
					{ContainerPort: 80, Protocol: v1.ProtocolTCP},
				}
			}),
			want: []string{
				`spec.containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]`,
				`spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[0]`,
				`spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[1]`,
				`spec.containers[0].ports[1]: duplicate port name "http" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]`,
			},
		},
		"negative grace period": {
			change: spec(func(spec *v1.PodSpec) { spec.TerminationGracePeriodSeconds = new(int64(-1)) }),
			want:   []string{`spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := validPod()
			test.change(pod)
			if diff := cmp.Diff(test.want, Warnings(pod)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateWarnings(t *testing.T) {
	template := &v1.PodTemplateSpec{Spec: validPod().Spec}
	template.Annotations = map[string]string{
		v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "app": "runtime/default",
		v1.SeccompPodAnnotationKey:                                    "unconfined",
	}
	want := []string{
		`spec.template.metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "seccompProfile" field instead`,
		`spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]: deprecated since v1.30; use the "appArmorProfile" field instead`,
	}
	if diff := cmp.Diff(want, TemplateWarnings(template, field.NewPath("spec", "template"))); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	template.Spec.SecurityContext.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	if got := TemplateWarnings(template, field.NewPath("spec", "template")); len(got) != 1 {
		t.Errorf("with the pod's profile in both: %q, want only that of seccomp", got)
	}
}
