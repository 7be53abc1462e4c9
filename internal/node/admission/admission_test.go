// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
)

func TestCheck(t *testing.T) {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"disk": "fast"}},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "sick", Effect: v1.TaintEffectNoExecute}, {Key: "full", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("3"),
			"example.com/gpu": resource.MustParse("1"),
		}},
	}
	tolerating := func(change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c"}}, Tolerations: []v1.Toleration{{Key: "sick", Operator: v1.TolerationOpExists}},
		}}
		change(p)
		return p
	}
	requesting := func(name v1.ResourceName, amount string) *v1.Pod {
		return tolerating(func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(amount)}
		})
	}
	onPort := func(ip string) *v1.Pod {
		return tolerating(func(p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80, HostIP: ip, Protocol: v1.ProtocolTCP}}
		})
	}
	onProtocol := func(p *v1.Pod, protocol v1.Protocol) *v1.Pod {
		p.Spec.Containers[0].Ports[0].Protocol = protocol
		return p
	}
	// inInit has the port in its init container, not in its app container.
	inInit := func(p *v1.Pod, policy *v1.ContainerRestartPolicy) *v1.Pod {
		ports := p.Spec.Containers[0].Ports
		p.Spec.Containers[0].Ports = nil
		p.Spec.InitContainers = []v1.Container{{Name: "i", Ports: ports, RestartPolicy: policy}}
		return p
	}
	portTaken := &pod.Refusal{Reason: "NodePorts", Message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"}
	strict := tolerating(func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
	})
	plain := tolerating(func(*v1.Pod) {})
	for _, test := range []struct {
		name   string
		pod    *v1.Pod
		others []*v1.Pod
		want   *pod.Refusal
	}{
		{"fits", plain, nil, nil},
		{"feature", tolerating(func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, new(false) }), nil, &pod.Refusal{
			Reason: "PodFeatureUnsupported", Message: "Pod requires node features that are not available: UserNamespacesHostNetworkSupport"}},
		{"other os", tolerating(func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }), nil,
			&pod.Refusal{Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS"}},
		{"label of another os", tolerating(func(p *v1.Pod) { p.Labels = map[string]string{v1.LabelOSStable: "windows"} }), nil,
			&pod.Refusal{Reason: "PodOSSelectorNodeLabelDoesNotMatch", Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}},
		{"options of Windows", tolerating(func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{HostProcess: new(true)}}
		}), nil, nil},
		{"cpu", requesting(v1.ResourceCPU, "1500m"), []*v1.Pod{requesting(v1.ResourceCPU, "1")},
			&pod.Refusal{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"}},
		{"memory", requesting(v1.ResourceMemory, "2Gi"), nil,
			&pod.Refusal{Reason: "OutOfmemory", Message: "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824"}},
		{"pods", plain, []*v1.Pod{plain, plain, plain},
			&pod.Refusal{Reason: "OutOfpods", Message: "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"}},
		{"selector that matches", tolerating(func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }), nil, nil},
		{"selector that does not", tolerating(func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "slow"} }), nil,
			&pod.Refusal{Reason: "NodeAffinity", Message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}},
		{"extended resource", requesting("example.com/gpu", "1"), []*v1.Pod{requesting("example.com/gpu", "1")},
			&pod.Refusal{Reason: "OutOfexample.com/gpu", Message: "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1"}},
		{"resource of the cluster", requesting("example.com/license", "1"), nil, nil},
		{"strict groups policy", strict, nil, &pod.Refusal{
			Reason: "SupplementalGroupsPolicyNotSupported", Message: "SupplementalGroupsPolicy=Strict is not supported in this node"}},
		{"port", onPort("127.0.0.1"), []*v1.Pod{onPort("")}, portTaken},
		{"port of a sidecar", inInit(onPort(""), new(v1.ContainerRestartPolicyAlways)), []*v1.Pod{onPort("")}, portTaken},
		{"port of an init container", inInit(onPort(""), nil), []*v1.Pod{onPort("")}, nil},
		{"port of another protocol", onProtocol(onPort("127.0.0.1"), v1.ProtocolUDP), []*v1.Pod{onPort("")}, nil},
		{"UDP port", onProtocol(onPort("127.0.0.1"), v1.ProtocolUDP), []*v1.Pod{onProtocol(onPort("127.0.0.1"), v1.ProtocolUDP)}, portTaken},
		{"port on all addresses", onPort("0.0.0.0"), []*v1.Pod{onPort("127.0.0.2")}, portTaken},
		{"port on another address", onPort("127.0.0.1"), []*v1.Pod{onPort("127.0.0.2")}, nil},
		{"taint", &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}, nil,
			&pod.Refusal{Reason: "TaintToleration", Message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"}},
	} {
		if diff := cmp.Diff(test.want, Check(klog.Background(), node, test.pod, LoadOf(test.others))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestStrictGroupsPolicyOnSupportingNode(t *testing.T) {
	node := &v1.Node{Status: v1.NodeStatus{Features: &v1.NodeFeatures{SupplementalGroupsPolicy: new(true)}}}
	p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}}}
	if refusal := checkGroupsPolicy(node, p); refusal != nil {
		t.Error(refusal)
	}
}

func TestLoadRemove(t *testing.T) {
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("2")}}}
	onPort := func(port int32) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Ports: []v1.ContainerPort{{HostPort: port}}}}}}
	}
	var load Load
	load.Add(ShareOf(onPort(80)))
	load.Add(ShareOf(onPort(81)))
	load.Remove(ShareOf(onPort(80)))
	if refusal := Check(klog.Background(), node, onPort(80), &load); refusal != nil {
		t.Error(refusal)
	}
	if refusal := Check(klog.Background(), node, onPort(81), &load); refusal == nil || refusal.Reason != "NodePorts" {
		t.Errorf("port 81: %v", refusal)
	}
	load.Add(ShareOf(onPort(80)))
	if refusal := Check(klog.Background(), node, onPort(82), &load); refusal == nil || refusal.Reason != "OutOfpods" {
		t.Errorf("a third pod: %v", refusal)
	}
}

// TestLoadOfShrinkingPod: what a resize takes from a pod is free once the pod no longer has it.
func TestLoadOfShrinkingPod(t *testing.T) {
	cpu := func(cpu string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)} }
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("9")}}}
	withCPU := func(wants string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: cpu(wants)}}}}}
	}
	shrinking := withCPU("1")
	for has, want := range map[string]string{"1": "", "2": "OutOfcpu"} {
		shrinking.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: cpu("1"), Resources: &v1.ResourceRequirements{Requests: cpu(has)}}}
		refusal := Check(klog.Background(), node, withCPU("3"), LoadOf([]*v1.Pod{shrinking}))
		if refusal == nil {
			refusal = &pod.Refusal{}
		}
		if refusal.Reason != want {
			t.Errorf("beside a pod that has %s: refused with %q, want %q", has, refusal.Reason, want)
		}
	}
}
