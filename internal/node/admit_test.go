// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
)

func TestAdmit(t *testing.T) {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{"disk": "fast"}},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "sick", Effect: v1.TaintEffectNoExecute}, {Key: "full", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("3"),
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
	plain := tolerating(func(*v1.Pod) {})
	for _, test := range []struct {
		name   string
		pod    *v1.Pod
		others []*v1.Pod
		want   *pod.Refusal
	}{
		{"fits", plain, nil, nil},
		{"other os", tolerating(func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }), nil,
			&pod.Refusal{Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS"}},
		{"label of another os", tolerating(func(p *v1.Pod) { p.Labels = map[string]string{v1.LabelOSStable: "windows"} }), nil,
			&pod.Refusal{Reason: "PodOSSelectorNodeLabelDoesNotMatch", Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}},
		{"host process", tolerating(func(p *v1.Pod) {
			yes := true
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{HostProcess: &yes}}
		}), nil, &pod.Refusal{Reason: "PodOSNotSupported", Message: "Failed to admit pod as HostProcess containers need a Windows node"}},
		{"cpu", requesting(v1.ResourceCPU, "1500m"), []*v1.Pod{requesting(v1.ResourceCPU, "1")},
			&pod.Refusal{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"}},
		{"memory", requesting(v1.ResourceMemory, "2Gi"), nil,
			&pod.Refusal{Reason: "OutOfmemory", Message: "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824"}},
		{"pods", plain, []*v1.Pod{plain, plain, plain},
			&pod.Refusal{Reason: "OutOfpods", Message: "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"}},
		{"selector that matches", tolerating(func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }), nil, nil},
		{"selector that does not", tolerating(func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "slow"} }), nil,
			&pod.Refusal{Reason: "NodeAffinity", Message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}},
		{"port", onPort("127.0.0.1"), []*v1.Pod{onPort("")},
			&pod.Refusal{Reason: "NodePorts", Message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"}},
		{"port on another address", onPort("127.0.0.1"), []*v1.Pod{onPort("127.0.0.2")}, nil},
		{"taint", &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}, nil,
			&pod.Refusal{Reason: "TaintToleration", Message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"}},
	} {
		if diff := cmp.Diff(test.want, admit(klog.Background(), node, test.pod, test.others)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
