// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
)

const (
	// servedClasses is the prefix of the classes of load balancers that the cluster's controller serves.
	servedClasses = "kindred.dev/"
	// classAnnotation named an Ingress's class before spec.ingressClassName did.
	classAnnotation = "kubernetes.io/ingress.class"
)

func findInService(s *corev1.Service) []Finding {
	class := ptr.Deref(s.Spec.LoadBalancerClass, "")
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || class == "" || strings.HasPrefix(class, servedClasses) {
		return nil
	}
	return []Finding{{&loadBalancerClass, fmt.Sprintf("spec.loadBalancerClass: this cluster serves Services without a class; "+
		"this one gets no address until a controller of the class %q gives it one", class)}}
}

func findInIngress(i *networkingv1.Ingress, cluster Cluster) []Finding {
	classes := cluster.IngressClasses()
	name := ptr.Deref(i.Spec.IngressClassName, i.Annotations[classAnnotation])
	switch {
	case name == "" && len(classes) == 0:
		return []Finding{{&ingressClass, "spec.ingressClassName: there is no IngressClass; the Ingress is not served until an ingress controller is installed"}}
	case name == "" || slices.ContainsFunc(classes, func(c *networkingv1.IngressClass) bool { return c.Name == name }):
		return nil
	}
	return []Finding{{&ingressClass, fmt.Sprintf("spec.ingressClassName: there is no IngressClass %q; the Ingress is not served until its controller is installed", name)}}
}
