// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestStatusUpdate(t *testing.T) {
	const ip = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
	none := func(*v1.Pod) {}
	status := func(change func(*v1.PodStatus)) func(*v1.Pod) {
		return func(pod *v1.Pod) { change(&pod.Status) }
	}
	for name, test := range map[string]struct {
		old, new func(*v1.Pod)
		want     []string
	}{
		"nothing": {none, none, nil},
		"addresses": {none, status(func(status *v1.PodStatus) {
			status.PodIP, status.PodIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}, {IP: "2001:db8::1"}}
			status.HostIP, status.HostIPs = "10.0.0.2", []v1.HostIP{{IP: "10.0.0.2"}}
		}), nil},
		"bad addresses": {none, status(func(status *v1.PodStatus) {
			status.PodIP, status.PodIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.2"}, {IP: "10.0.0.3"}}
			status.HostIP, status.HostIPs = "h", []v1.HostIP{{IP: "i"}}
		}), []string{
			`status.podIPs: Invalid value: [{"ip":"10.0.0.2"},{"ip":"10.0.0.3"}]: may specify no more than one IP for each IP family`,
			"status.podIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `podIP`",
			"status.hostIPs[0].ip: Invalid value: \"i\": must be equal to `hostIP`",
			`status.hostIPs[0]: Invalid value: "i": ` + ip,
		}},
		"podIP without podIPs": {
			none, status(func(status *v1.PodStatus) { status.PodIP = "10.0.0.1" }),
			[]string{`status.podIPs: Invalid value: null: podIP and podIPs must either both be set or both be unset`},
		},
		"another class": {
			status(func(status *v1.PodStatus) { status.QOSClass = v1.PodQOSBurstable }),
			status(func(status *v1.PodStatus) { status.QOSClass = v1.PodQOSGuaranteed }),
			[]string{`status.qosClass: Invalid value: "Guaranteed": field is immutable`},
		},
		"conditions": {none, status(func(status *v1.PodStatus) {
			status.Conditions = []v1.PodCondition{{Type: v1.PodReady}, {Type: "example.com/ready"}, {Type: "a b", ObservedGeneration: -1}}
			status.ObservedGeneration = -1
		}), []string{
			`status.conditions[2].observedGeneration: Invalid value: -1: must be a non-negative integer`,
			`status.conditions[2].Type: Invalid value: "a b": ` + qualified,
			`status.observedGeneration: Invalid value: -1: must be a non-negative integer`,
		}},
		"node name": {
			none, spec(func(spec *v1.PodSpec) { spec.NodeName = "n" }),
			[]string{`status.nodeName: Forbidden: may not be changed directly`},
		},
		"nominated node": {none, status(func(status *v1.PodStatus) { status.NominatedNodeName = "n" }), nil},
		"nominated node of a bound pod": {
			spec(func(spec *v1.PodSpec) { spec.NodeName = "n" }),
			func(pod *v1.Pod) { pod.Spec.NodeName = "n"; pod.Status.NominatedNodeName = "M" },
			[]string{
				`status.nominatedNodeName: Invalid value: "M": ` + subdomain,
				`status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node`,
			},
		},
		"users": {none, status(func(status *v1.PodStatus) {
			status.ContainerStatuses = []v1.ContainerStatus{{User: &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1 << 32, GID: -1, SupplementalGroups: []int64{-2}}}}}
		}), []string{
			`status.containerStatuses[0].user.linux.uid: Invalid value: 4294967296: must be between 0 and 4294967295, inclusive`,
			`status.containerStatuses[0].user.linux.gid: Invalid value: -1: must be between 0 and 2147483647, inclusive`,
			`status.containerStatuses[0].user.linux.supplementalGroups[0]: Invalid value: -2: must be between 0 and 2147483647, inclusive`,
		}},
		"claims": {
			none, status(func(status *v1.PodStatus) {
				status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("C")}}
			}),
			[]string{
				"status.resourceClaimStatuses[0].name: Invalid value: \"gpu\": must match the name of an entry in `spec.resourceClaims`",
				`status.resourceClaimStatuses[0].resourceClaimName: Invalid value: "C": ` + subdomain,
			},
		},
		"extended claim": {none, status(func(status *v1.PodStatus) {
			mapping := v1.ContainerExtendedResourceRequest{ContainerName: "app", ResourceName: "example.com/gpu", RequestName: "r"}
			status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
				RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "none", RequestName: "r"}, mapping, mapping},
			}
		}), []string{
			`status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: "none": must match the name of an entry in spec.initContainers.name or spec.containers.name`,
			`status.extendedResourceClaimStatus.requestMappings[1].resourceName: Invalid value: "example.com/gpu": must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests`,
			`status.extendedResourceClaimStatus.requestMappings[2].resourceName: Invalid value: "example.com/gpu": must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests`,
			`status.extendedResourceClaimStatus.requestMappings[2].containerName: Duplicate value: "app"`,
			`status.extendedResourceClaimStatus.requestMappings[2].resourceName: Duplicate value: "example.com/gpu"`,
			`status.extendedResourceClaimStatus.requestMappings[2].requestName: Duplicate value: "r"`,
			`status.extendedResourceClaimStatus.resourceClaimName: Required value`,
		}},
		"devices": {none, status(func(status *v1.PodStatus) {
			status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", AllocatedResourcesStatus: []v1.ResourceStatus{
				{Name: "example.com/gpu", Resources: []v1.ResourceHealth{
					{ResourceID: "0", Health: "Fine", Message: new(strings.Repeat("m", v1.ResourceHealthMessageMaxLength+1))},
					{ResourceID: "0", Health: v1.ResourceHealthStatusHealthy, Message: new("")},
				}},
			}}}
		}), []string{
			`status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: "example.com/gpu": must match one of the container's resource requests`,
			`status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: "Fine": supported values: "Healthy", "Unhealthy", "Unknown"`,
			`status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].message: Too long: may not be more than 1024 bytes`,
			`status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].message: Required value: must be non-empty if specified`,
			`status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID: Duplicate value: "0"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, old := validPod(), validPod()
			test.new(pod)
			test.old(old)
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) { ValidatePodStatusUpdate(c, pod, old) }))
		})
	}
}

func TestRestarts(t *testing.T) {
	onCode := func(action v1.ContainerRestartRuleAction, code int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code},
		}}}
	}
	for name, test := range map[string]struct {
		pod   v1.RestartPolicy
		own   *v1.ContainerRestartPolicy
		rules []v1.ContainerRestartRule
		code  int32
		want  bool
	}{
		"always":                {pod: v1.RestartPolicyAlways, want: true},
		"never":                 {pod: v1.RestartPolicyNever, code: 1},
		"on failure, failed":    {pod: v1.RestartPolicyOnFailure, code: 1, want: true},
		"on failure, succeeded": {pod: v1.RestartPolicyOnFailure},
		"the container's policy takes precedence":               {pod: v1.RestartPolicyAlways, own: new(v1.ContainerRestartPolicyNever), code: 1},
		"the container's rules take precedence over its policy": {pod: v1.RestartPolicyNever, own: new(v1.ContainerRestartPolicyNever), rules: onCode(v1.ContainerRestartRuleActionRestart, 42), code: 42, want: true},
		"the container's rules do not match":                    {pod: v1.RestartPolicyNever, own: new(v1.ContainerRestartPolicyNever), rules: onCode(v1.ContainerRestartRuleActionRestart, 42), code: 1},
		"restart of all containers, any code":                   {pod: v1.RestartPolicyNever, own: new(v1.ContainerRestartPolicyNever), rules: onCode(v1.ContainerRestartRuleActionRestartAllContainers, 42), code: 1, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			old := validPod()
			old.Spec.RestartPolicy = test.pod
			old.Spec.Containers[0].RestartPolicy, old.Spec.Containers[0].RestartPolicyRules = test.own, test.rules
			pod := old.DeepCopy()
			ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: test.code}}
			old.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", State: ended}}
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
			want := []string{`status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state`}
			if test.want {
				want = nil
			}
			checktest.Diff(t, want, check.Run(func(c *check.Checker) { ValidatePodStatusUpdate(c, pod, old) }))
		})
	}
}
