// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// The server allocates some fields of a Service, depending on its type. So an update that omits
// such fields keeps them, and an update that changes the type drops those that the new type does
// not use. If the client has changed such a field too, validation checks the client's value.

// syncClusterIPs keeps clusterIP and clusterIPs consistent, for clients that know only clusterIP;
// old is nil on create.
func syncClusterIPs(s, old *corev1.Service) {
	spec := &s.Spec
	if old == nil {
		if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		return
	}
	pluralKept := slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs)
	switch {
	case spec.ClusterIP == old.Spec.ClusterIP:
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	case spec.ClusterIP == "" && pluralKept:
		spec.ClusterIPs = nil
	case pluralKept:
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// keepGiven restores allocated fields that the update omits, so that a manifest can be applied
// twice.
func keepGiven(s, old *corev1.Service) {
	if needsClusterIP(s) && needsClusterIP(old) {
		if s.Spec.ClusterIP == "" {
			s.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if givesNodePorts(s) && givesNodePorts(old) {
		keepNodePorts(s, old)
	}
	if needsHealthCheck(s) && needsHealthCheck(old) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// keepNodePorts matches ports by name. It does not keep a node port that another port requests.
func keepNodePorts(s, old *corev1.Service) {
	asked := nodePorts(s)
	before := map[string]int32{}
	for _, p := range old.Spec.Ports {
		before[p.Name] = p.NodePort
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if given := before[p.Name]; p.NodePort == 0 && !asked.Has(given) {
			p.NodePort = given
		}
	}
}

// dropUnusedByType clears unchanged fields that the new type does not use. Addresses and ports are
// released after the write.
func dropUnusedByType(_ context.Context, s, old *corev1.Service) {
	if old == nil {
		return
	}
	spec, was := &s.Spec, &old.Spec
	if needsClusterIP(old) && !needsClusterIP(s) {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		spec.IPFamilyPolicy = dropSame(spec.IPFamilyPolicy, was.IPFamilyPolicy)
	}
	if hasNodePorts(old) && !hasNodePorts(s) && nodePorts(old).IsSuperset(nodePorts(s)) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheck(old) && !needsHealthCheck(s) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if isLoadBalancer(old) && !isLoadBalancer(s) {
		spec.AllocateLoadBalancerNodePorts = dropSame(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts)
		spec.LoadBalancerClass = dropSame(spec.LoadBalancerClass, was.LoadBalancerClass)
	}
	if reachableFromOutside(was) && !reachableFromOutside(spec) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if !isLoadBalancer(s) {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// dropSame returns nil for an unchanged value.
func dropSame[T comparable](now, before *T) *T {
	if ptr.Equal(now, before) {
		return nil
	}
	return now
}

func needsClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

// isHeadless reports whether a Service has no address of its own: DNS resolves to the pods.
func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func isLoadBalancer(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeLoadBalancer }

// hasNodePorts reports whether the Service's type may have node ports, givesNodePorts whether the
// server allocates them.
func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || isLoadBalancer(s)
}

func givesNodePorts(s *corev1.Service) bool {
	return hasNodePorts(s) && (!isLoadBalancer(s) || ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true))
}

// needsHealthCheck reports whether the load balancer must know which nodes have pods of the
// Service.
func needsHealthCheck(s *corev1.Service) bool {
	return isLoadBalancer(s) && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func nodePorts(s *corev1.Service) sets.Set[int32] {
	ports := sets.New[int32]()
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports.Insert(p.NodePort)
		}
	}
	return ports
}
