// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/ptr"
)

var ofServices = []corev1.ResourceName{corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers}

func services(list generic.ListFuncByNamespace) quota.Evaluator {
	return &evaluator[*corev1.Service]{
		counted: corev1.Resource("services"), list: list,
		handles: createdOrUpdated, // the type may change
		counts:  func(name corev1.ResourceName) bool { return slices.Contains(ofServices, name) },
		usage:   always(serviceUsage),
	}
}

func serviceUsage(s *corev1.Service) corev1.ResourceList {
	balancers := 0
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		balancers = 1
	}
	return corev1.ResourceList{
		corev1.ResourceServices:              number(1),
		corev1.ResourceServicesNodePorts:     number(nodePorts(s)),
		corev1.ResourceServicesLoadBalancers: number(balancers),
	}
}

// nodePorts returns how many node ports the Service will have. They are not allocated before
// it is created.
func nodePorts(s *corev1.Service) int {
	switch {
	case s.Spec.Type == corev1.ServiceTypeNodePort:
		return len(s.Spec.Ports)
	case s.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return 0
	case ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true):
		return len(s.Spec.Ports)
	}
	n := 0
	for _, port := range s.Spec.Ports {
		if port.NodePort != 0 {
			n++
		}
	}
	return n
}
