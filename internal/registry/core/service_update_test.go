// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestKeepGiven checks that an update keeps allocated fields that the client omits, so that a
// manifest can be applied twice.
func TestKeepGiven(t *testing.T) {
	old := newService(func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 30003
		s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80, NodePort: 30001}, {Name: "b", Port: 81, NodePort: 30002}}
	})
	s := newService(func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		clusterIPs()(s)
		// Port "a" requests the node port of "b".
		s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80, NodePort: 30002}, {Name: "b", Port: 81}, {Name: "c", Port: 82}}
	})
	keepGiven(s, old)
	syncClusterIPs(s, old)
	if s.Spec.ClusterIP != "10.96.0.7" || !cmp.Equal(s.Spec.ClusterIPs, []string{"10.96.0.7"}) || s.Spec.HealthCheckNodePort != 30003 {
		t.Errorf("%s, %v, %d", s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.HealthCheckNodePort)
	}
	if got := []int32{s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort, s.Spec.Ports[2].NodePort}; !cmp.Equal(got, []int32{30002, 0, 0}) {
		t.Errorf("node ports %v", got)
	}
}

func TestSyncClusterIPs(t *testing.T) {
	one := []string{"10.96.0.7"}
	for name, tc := range map[string]struct {
		old      *corev1.Service
		singular string
		plural   []string
		want     []string
	}{
		"created by an old client": {nil, "10.96.0.7", nil, one},
		"created by a new client":  {nil, "", nil, nil},
		"clusterIPs omitted":       {newService(), "10.96.0.7", nil, one},
		"clusterIP cleared":        {newService(), "", one, nil},
		"clusterIP changed":        {newService(), "10.96.0.8", one, []string{"10.96.0.8"}},
		"both changed":             {newService(), "10.96.0.8", []string{"10.96.0.9"}, []string{"10.96.0.9"}},
	} {
		s := newService(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = tc.singular, tc.plural })
		syncClusterIPs(s, tc.old)
		if diff := cmp.Diff(tc.want, s.Spec.ClusterIPs); diff != "" {
			t.Errorf("%s: clusterIPs (-want +got):\n%s", name, diff)
		}
	}
}

func TestDropUnusedByType(t *testing.T) {
	loadBalancer := func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 30003
		s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts = new("example.com/lb"), new(true)
		s.Spec.Ports[0].NodePort = 30001
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	}
	t.Run("to an address in the cluster", func(t *testing.T) {
		s := newService(loadBalancer)
		s.Spec.Type = corev1.ServiceTypeClusterIP
		dropUnusedByType(context.Background(), s, newService(loadBalancer))
		if diff := cmp.Diff(newService(), s); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("to a name", func(t *testing.T) {
		s := newService()
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "db.example.com."
		dropUnusedByType(context.Background(), s, newService())
		want := newService(externalName)
		want.Spec.InternalTrafficPolicy = s.Spec.InternalTrafficPolicy // unused, but kept, as upstream does
		if diff := cmp.Diff(want, s); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("what was changed is left for validation", func(t *testing.T) {
		s := newService(loadBalancer)
		s.Spec.Type, s.Spec.HealthCheckNodePort, s.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 30009, 30008
		dropUnusedByType(context.Background(), s, newService(loadBalancer))
		if s.Spec.HealthCheckNodePort != 30009 || s.Spec.Ports[0].NodePort != 30008 {
			t.Errorf("%d, %d", s.Spec.HealthCheckNodePort, s.Spec.Ports[0].NodePort)
		}
	})
}

func TestPortWishes(t *testing.T) {
	nodePort := func(ports ...corev1.ServicePort) *corev1.Service {
		return newService(func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeNodePort, ports })
	}
	without := func(s *corev1.Service) *corev1.Service {
		s.Spec.Type, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
		return s
	}
	health := func(s *corev1.Service, port int32) *corev1.Service {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, port
		return s
	}
	for name, tc := range map[string]struct {
		s, old *corev1.Service
		want   []portWish
	}{
		"none":                                  {newService(), nil, nil},
		"any":                                   {nodePort(corev1.ServicePort{Port: 80}, corev1.ServicePort{Port: 81}), nil, []portWish{{0, []int{0}}, {0, []int{1}}}},
		"one port for both protocols":           {nodePort(corev1.ServicePort{Port: 53}, corev1.ServicePort{Port: 53, Protocol: "UDP"}), nil, []portWish{{0, []int{0, 1}}}},
		"one requested port for both protocols": {nodePort(corev1.ServicePort{Port: 53}, corev1.ServicePort{Port: 53, Protocol: "UDP", NodePort: 30053}), nil, []portWish{{30053, []int{1}}}},
		"already allocated":                     {nodePort(corev1.ServicePort{Port: 80, NodePort: 30080}, corev1.ServicePort{Port: 81, NodePort: 30081}), nodePort(corev1.ServicePort{Port: 80, NodePort: 30080}), []portWish{{30081, []int{1}}}},
		"only requested ports":                  {without(nodePort(corev1.ServicePort{Port: 80}, corev1.ServicePort{Port: 81, NodePort: 30081})), nil, []portWish{{30081, []int{1}}}},
		"a health check":                        {without(health(nodePort(corev1.ServicePort{Port: 80}), 0)), nil, []portWish{{0, nil}}},
		"a requested health check port":         {without(health(nodePort(corev1.ServicePort{Port: 80}), 30099)), nil, []portWish{{30099, nil}}},
		"an allocated health check port":        {without(health(nodePort(corev1.ServicePort{Port: 80}), 30099)), health(nodePort(corev1.ServicePort{Port: 80}), 30099), nil},
	} {
		if diff := cmp.Diff(tc.want, portWishes(tc.s, tc.old), cmp.AllowUnexported(portWish{})); diff != "" {
			t.Errorf("%s: wishes (-want +got):\n%s", name, diff)
		}
	}
	s := nodePort(corev1.ServicePort{Port: 53}, corev1.ServicePort{Port: 53, Protocol: "UDP", NodePort: 30053})
	portWishes(s, nil)
	if s.Spec.Ports[0].NodePort != 30053 {
		t.Errorf("TCP is at %d", s.Spec.Ports[0].NodePort)
	}
}
