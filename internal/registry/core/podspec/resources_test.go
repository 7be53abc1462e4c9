// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestResourceRequirements(t *testing.T) {
	for name, test := range map[string]struct {
		requirements v1.ResourceRequirements
		want         []string
	}{
		"valid": {requirements: v1.ResourceRequirements{
			Limits:   list("cpu", "1", "memory", "1Gi", "example.com/gpu", "1", "hugepages-2Mi", "4Mi"),
			Requests: list("cpu", "500m", "memory", "1Gi", "example.com/gpu", "1", "hugepages-2Mi", "4Mi"),
		}},
		"more than the limit": {
			requirements: v1.ResourceRequirements{Limits: list("cpu", "1"), Requests: list("cpu", "2")},
			want:         []string{`r.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		},
		"devices are not overcommitted": {
			requirements: v1.ResourceRequirements{Limits: list("example.com/gpu", "2"), Requests: list("example.com/gpu", "1", "example.com/tpu", "1")},
			want: []string{
				`r.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2`,
				`r.limits: Required value: Limit must be set for non overcommitable resources`,
			},
		},
		"names and amounts": {
			requirements: v1.ResourceRequirements{Limits: list("pods", "-1")},
			want: []string{
				`r.limits[pods]: Invalid value: "pods": must be a standard resource for containers`,
				`r.limits[pods]: Invalid value: "-1": must be greater than or equal to 0`,
			},
		},
		"huge pages": {
			requirements: v1.ResourceRequirements{Limits: list("hugepages-2Mi", "3Mi")},
			want: []string{
				`r.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi`,
				`r: Forbidden: HugePages require cpu or memory`,
			},
		},
		"claims": {
			requirements: v1.ResourceRequirements{Claims: []v1.ResourceClaim{
				{Name: "gpu", Request: "a"}, {Name: "gpu", Request: "b"}, {Name: "gpu", Request: "a"}, {Name: "gpu"}, {Name: "gpu", Request: "c"}, {Name: "tpu"}, {},
			}},
			want: []string{
				`r.claims[2]: Duplicate value: "gpu/a"`,
				`r.claims[3]: Duplicate value: "gpu"`,
				`r.claims[3]: Duplicate value: "gpu"`,
				`r.claims[4]: Duplicate value: "gpu"`,
				`r.claims[5]: Not found: "tpu": must be one of the names in pod.spec.resourceClaims: gpu`,
				`r.claims[6]: Required value`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) {
				ValidateResourceRequirements(c, &test.requirements, sets.New("gpu"), field.NewPath("r"))
			}))
		})
	}
}

func TestPodResources(t *testing.T) {
	createCases{
		"valid": {change: spec(func(spec *v1.PodSpec) {
			spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "2"), Requests: list("cpu", "1")}
			spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list("cpu", "2"), Requests: list("cpu", "1")}
		})},
		"less than the sum of the containers": {
			change: spec(func(spec *v1.PodSpec) {
				spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "1"), Requests: list("cpu", "1")}
				spec.Containers = append(spec.Containers, container("other"))
				spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list("cpu", "2"), Requests: list("cpu", "1")}
				spec.Containers[1].Resources = v1.ResourceRequirements{Requests: list("cpu", "1")}
			}),
			want: []string{
				`spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2`,
				`spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1`,
			},
		},
		"resources that pods cannot have": {
			change: spec(func(spec *v1.PodSpec) {
				spec.Resources = &v1.ResourceRequirements{Limits: list("ephemeral-storage", "1"), Claims: []v1.ResourceClaim{}}
			}),
			want: []string{
				`spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level`,
				`spec.resources.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"`,
			},
		},
		"overhead": {
			change: spec(func(spec *v1.PodSpec) { spec.Overhead = list("cpu", "-1") }),
			want:   []string{`spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`},
		},
		"claims": {
			change: spec(func(spec *v1.PodSpec) {
				spec.ResourceClaims = []v1.PodResourceClaim{
					{Name: "a", ResourceClaimName: new("c")},
					{Name: "a", ResourceClaimTemplateName: new("T")},
					{Name: "b"},
				}
			}),
			want: []string{
				`spec.resourceClaims[1].name: Duplicate value: "a"`,
				`spec.resourceClaims[1].resourceClaimTemplateName: Invalid value: "T": ` + subdomain,
				"spec.resourceClaims[2]: Invalid value: {\"name\":\"b\"}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
			},
		},
	}.run(t)
}

func TestResize(t *testing.T) {
	resized := func(change func(*v1.Pod)) *v1.Pod {
		pod := validPod()
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: list("cpu", "2", "memory", "1Gi"), Requests: list("cpu", "1", "memory", "1Gi")}
		change(pod)
		return pod
	}
	limits := func(limits v1.ResourceList) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.Containers[0].Resources.Limits = limits }
	}
	none := func(*v1.Pod) {}
	for name, test := range map[string]struct {
		change, old func(*v1.Pod)
		want        []string
	}{
		"more CPU": {change: limits(list("cpu", "3", "memory", "1Gi")), old: none},
		"a removed limit": {
			change: limits(list("cpu", "2")), old: none,
			want: []string{`spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed`},
		},
		"another resource": {
			change: limits(list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "1Gi")), old: none,
			want: []string{`spec: Forbidden: only cpu and memory resources are mutable`},
		},
		"another class": {
			change: func(pod *v1.Pod) {
				pod.Spec.Containers[0].Resources.Requests = list("cpu", "2", "memory", "1Gi")
			},
			old:  none,
			want: []string{`spec: Invalid value: "": Pod QOS Class may not change as a result of resizing`},
		},
		"another container": {
			change: func(pod *v1.Pod) { pod.Spec.Containers[0].Name = "other" }, old: none,
			want: []string{`spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize`},
		},
		"added container": {
			change: func(pod *v1.Pod) { pod.Spec.InitContainers = []v1.Container{container("init")} }, old: none,
			want: []string{`spec.initContainers: Forbidden: initContainers may not be added or removed on resize`},
		},
		"other change": {
			change: func(pod *v1.Pod) { pod.Spec.Hostname = "h" }, old: none,
			want: []string{`spec: Forbidden: only cpu and memory resources are mutable`},
		},
		"on a node that cannot": {
			change: none,
			old: func(pod *v1.Pod) {
				pod.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
			},
			want: []string{`spec: Forbidden: Pod running on node without support for resize`},
		},
		"pod-level resources": {
			change: func(pod *v1.Pod) {
				pod.Spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "4"), Requests: list("cpu", "2")}
			},
			old: func(pod *v1.Pod) {
				pod.Spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "3"), Requests: list("cpu", "1")}
			},
		},
		"removed pod-level limit": {
			change: func(pod *v1.Pod) { pod.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "2")} },
			old: func(pod *v1.Pod) {
				pod.Spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "3"), Requests: list("cpu", "1")}
			},
			want: []string{`spec.resources.limits: Forbidden: pod-level resource limits cannot be removed`},
		},
		"a static pod": {
			change: none, old: func(pod *v1.Pod) { pod.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} },
			want: []string{`[]: Forbidden: static pods cannot be resized`},
		},
		"a Windows pod": {
			change: none, old: func(pod *v1.Pod) { pod.Spec.OS = &v1.PodOS{Name: v1.Windows} },
			want: []string{`[]: Forbidden: windows pods cannot be resized`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) { ValidatePodResize(c, resized(test.change), resized(test.old)) }))
		})
	}
}
