// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	goruntime "runtime"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// admit says why the node refuses a pod, or nil. The scheduler has asked most of
// this already; a pod may also name its node itself, and nodes change.
func admit(logger klog.Logger, node *v1.Node, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
	for _, check := range []func() *pod.Refusal{
		func() *pod.Refusal { return checkOS(p) },
		func() *pod.Refusal { return checkResources(node, p, others) },
		func() *pod.Refusal { return checkAffinity(node, p) },
		func() *pod.Refusal { return checkPorts(p, others) },
		func() *pod.Refusal { return checkTaints(logger, node, p) },
	} {
		if refusal := check(); refusal != nil {
			return refusal
		}
	}
	return nil
}

func checkOS(p *v1.Pod) *pod.Refusal {
	if label, ok := p.Labels[v1.LabelOSStable]; ok && label != goruntime.GOOS {
		return &pod.Refusal{
			Reason:  "PodOSSelectorNodeLabelDoesNotMatch",
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		}
	}
	if p.Spec.OS != nil && string(p.Spec.OS.Name) != goruntime.GOOS {
		return &pod.Refusal{Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if hostProcess(p) {
		return &pod.Refusal{Reason: "PodOSNotSupported", Message: "Failed to admit pod as HostProcess containers need a Windows node"}
	}
	return nil
}

// hostProcess says whether the pod asks for Windows' HostProcess containers.
func hostProcess(p *v1.Pod) bool {
	asks := func(o *v1.WindowsSecurityContextOptions) bool {
		return o != nil && o.HostProcess != nil && *o.HostProcess
	}
	if sc := p.Spec.SecurityContext; sc != nil && asks(sc.WindowsOptions) {
		return true
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if sc := list[i].SecurityContext; sc != nil && asks(sc.WindowsOptions) {
				return true
			}
		}
	}
	return false
}

// The reasons of a node that is full, by resource.
var outOf = map[v1.ResourceName]string{
	v1.ResourceCPU:              "OutOfcpu",
	v1.ResourceMemory:           "OutOfmemory",
	v1.ResourceEphemeralStorage: "OutOfephemeral-storage",
	v1.ResourcePods:             "OutOfpods",
}

func checkResources(node *v1.Node, p *v1.Pod, others []*v1.Pod) *pod.Refusal {
	used := v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(int64(len(others)), resource.DecimalSI)}
	for _, other := range others {
		add(used, resourcehelper.PodRequests(other, resourcehelper.PodResourcesOptions{}))
	}
	wanted := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	wanted[v1.ResourcePods] = resource.MustParse("1")
	for _, name := range []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		request, capacity, taken := amount(name, wanted), amount(name, node.Status.Allocatable), amount(name, used)
		if request == 0 || taken+request <= capacity {
			continue
		}
		return &pod.Refusal{Reason: outOf[name], Message: fmt.Sprintf(
			"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, request, taken, capacity)}
	}
	return nil
}

func add(sum, more v1.ResourceList) {
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// amount is a quantity in the unit that is compared: thousandths of a CPU, else
// whole units.
func amount(name v1.ResourceName, list v1.ResourceList) int64 {
	quantity := list[name]
	if name == v1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

func checkAffinity(node *v1.Node, p *v1.Pod) *pod.Refusal {
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node); err == nil && fits {
		return nil
	}
	return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
}

func checkPorts(p *v1.Pod, others []*v1.Pod) *pod.Refusal {
	for _, mine := range hostPorts(p) {
		for _, other := range others {
			for _, theirs := range hostPorts(other) {
				if mine.HostPort == theirs.HostPort && mine.Protocol == theirs.Protocol && sameAddress(mine.HostIP, theirs.HostIP) {
					return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
				}
			}
		}
	}
	return nil
}

func hostPorts(p *v1.Pod) []v1.ContainerPort {
	var ports []v1.ContainerPort
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.HostPort > 0 {
					ports = append(ports, port)
				}
			}
		}
	}
	return ports
}

func sameAddress(a, b string) bool {
	unspecified := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a == b || unspecified(a) || unspecified(b)
}

// checkTaints refuses only for NoExecute: other taints keep the scheduler away, not the kubelet.
func checkTaints(logger klog.Logger, node *v1.Node, p *v1.Pod) *pod.Refusal {
	_, untolerated := corehelpers.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, p.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoExecute
	}, true)
	if !untolerated {
		return nil
	}
	return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
}

func predicate(name, description string) *pod.Refusal {
	return &pod.Refusal{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, description)}
}
