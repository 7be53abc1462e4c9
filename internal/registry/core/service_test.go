// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// newService returns a valid Service of type ClusterIP, with defaults and an address, and changed
// by change.
func newService(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{}
	s.Name, s.Namespace = "web", "default"
	s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7"}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	for _, f := range change {
		f(s)
	}
	SetDefaults_Service(s)
	return s
}

func ofType(kind corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Type = kind }
}

func headless(s *corev1.Service) {
	s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
}

func externalName(s *corev1.Service) {
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "db.example.com."
	s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = "", nil, nil, nil
}

func clusterIPs(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.ClusterIPs = ips
		s.Spec.ClusterIP = ""
		if len(ips) > 0 {
			s.Spec.ClusterIP = ips[0]
		}
	}
}

func ports(ports ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = ports }
}

type serviceChange = func(*corev1.Service)

func compare(t *testing.T, errs field.ErrorList, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestValidateService(t *testing.T) {
	loadBalancer := ofType(corev1.ServiceTypeLoadBalancer)
	for name, tc := range map[string]struct {
		change serviceChange
		want   []string
	}{
		"plain":                  {func(*corev1.Service) {}, nil},
		"headless without ports": {func(s *corev1.Service) { headless(s); s.Spec.Ports = nil }, nil},
		"external name":          {externalName, nil},
		"no ports":               {func(s *corev1.Service) { s.Spec.Ports = nil }, []string{"spec.ports: Required value"}},
		"unknown type": {ofType("Magic"), []string{
			`spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`}},
		"headless node port": {func(s *corev1.Service) { headless(s); s.Spec.Type = corev1.ServiceTypeNodePort }, []string{
			`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`}},
		"node port of a ClusterIP": {ports(corev1.ServicePort{Port: 80, NodePort: 30080}), []string{
			"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		"external name with an address": {func(s *corev1.Service) { externalName(s); clusterIPs("10.96.0.7")(s); s.Spec.ExternalName = "" }, []string{
			"spec.clusterIPs: Forbidden: may not be set for ExternalName services", "spec.externalName: Required value"}},
		"unnamed and duplicate ports": {ports(corev1.ServicePort{Port: 80}, corev1.ServicePort{Port: 80, Name: "a"}), []string{
			"spec.ports[0].name: Required value",
			`spec.ports[1]: Duplicate value: {"protocol":"TCP","port":80,"targetPort":0}`}},
		"bad ports": {ports(corev1.ServicePort{Name: "a", Port: 70000, Protocol: "ICMP", TargetPort: intstr.FromString("UPPER"), AppProtocol: new("a/b/c")}, corev1.ServicePort{Name: "a", Port: 1}), []string{
			"spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
			`spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`,
			`spec.ports[0].targetPort: Invalid value: "UPPER": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`,
			`spec.ports[0].targetPort: Invalid value: "UPPER": must contain at least one letter (a-z)`,
			`spec.ports[0].appProtocol: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
			`spec.ports[1].name: Duplicate value: "a"`}},
		"affinity": {func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(86401))}}
		}, []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400"}},
		"singular and plural differ": {func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.8" }, []string{
			"spec.clusterIPs: Invalid value: [\"10.96.0.7\"]: first value must match `clusterIP`"}},
		"two of one family": {clusterIPs("10.96.0.7", "10.96.0.8"), []string{
			`spec.clusterIPs: Invalid value: ["10.96.0.7","10.96.0.8"]: may specify no more than one IP for each IP family`}},
		"address of another family": {clusterIPs("fd00::7"), []string{
			"spec.clusterIPs[0]: Invalid value: \"fd00::7\": expected an IPv4 value as indicated by `ipFamilies[0]`"}},
		"None and an address": {clusterIPs("None", "10.96.0.7"), []string{
			`spec.clusterIPs: Invalid value: ["None","10.96.0.7"]: 'None' must be the first and only value`}},
		"leading zeros": {clusterIPs("10.096.0.7"), []string{
			`spec.clusterIPs[0]: Invalid value: "10.096.0.7": must not have leading 0s`}},
		"external IPs": {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"127.0.0.1", "x", "192.0.2.1"} }, []string{
			"spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
			`spec.externalIPs[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		"for load balancers only": {func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{" 10.0.0.0/8 "}
			s.Spec.AllocateLoadBalancerNodePorts = new(true)
			s.Spec.LoadBalancerClass = new("example.com/lb")
			s.Spec.HealthCheckNodePort = 30000
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, []string{
			"spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
			"spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
			"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
			`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`,
			"spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"}},
		"load balancer": {func(s *corev1.Service) {
			loadBalancer(s)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			s.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: "10.0.0.0/8, x"}
		}, []string{
			`metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`,
			"spec.healthCheckNodePort: Required value"}},
		"traffic": {func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicy("Far"))
			s.Spec.TrafficDistribution = new("PreferNone")
		}, []string{
			`spec.internalTrafficPolicy: Unsupported value: "Far": supported values: "Cluster", "Local"`,
			`spec.trafficDistribution: Unsupported value: "PreferNone": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, check.Run(func(c *check.Checker) { validateService(context.Background(), c, newService(tc.change)) }), tc.want)
		})
	}
}

func TestValidateServiceUpdate(t *testing.T) {
	dual := func(s *corev1.Service) {
		clusterIPs("10.96.0.7", "fd00::7")(s)
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
	local := func(port int32) serviceChange {
		return func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, port
		}
	}
	same := func(*corev1.Service) {}
	for name, tc := range map[string]struct {
		old, now serviceChange
		want     []string
	}{
		"nothing":                {same, same, nil},
		"another address":        {same, clusterIPs("10.96.0.8"), []string{`spec.clusterIPs[0]: Invalid value: ["10.96.0.8"]: may not change once set`}},
		"headless":               {same, headless, []string{`spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set`}},
		"headless to an address": {headless, same, []string{`spec.clusterIPs[0]: Invalid value: ["10.96.0.7"]: may not change once set`}},
		"to ExternalName":        {same, externalName, nil},
		"from ExternalName":      {externalName, same, nil},
		"a second address":       {same, dual, nil},
		"second address removed with SingleStack": {dual, same, nil},
		"second address removed": {dual, func(s *corev1.Service) { s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack) }, []string{
			`spec.ipFamilyPolicy: Invalid value: "PreferDualStack": must be set to 'SingleStack' when releasing the secondary clusterIP`,
			`spec.ipFamilyPolicy: Invalid value: "PreferDualStack": must be set to 'SingleStack' when releasing the secondary ipFamily`}},
		"health check port": {local(30001), local(30002), []string{"spec.healthCheckNodePort: Forbidden: field is immutable"}},
		"class of a load balancer": {ofType(corev1.ServiceTypeLoadBalancer), func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new("example.com/lb")
		}, []string{`spec.loadBalancerClass: Invalid value: "example.com/lb": may not change once set`}},
		"an address that an older version accepted": {clusterIPs("10.096.0.7"), clusterIPs("10.096.0.7"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, check.Run(func(c *check.Checker) {
				validateServiceUpdate(context.Background(), c, newService(tc.now), newService(tc.old))
			}), tc.want)
		})
	}
}

func TestValidateServiceStatus(t *testing.T) {
	ingress := func(kind corev1.ServiceType, in ...corev1.LoadBalancerIngress) *corev1.Service {
		s := newService(ofType(kind))
		s.Status.LoadBalancer.Ingress = in
		return s
	}
	old := newService()
	compare(t, check.Run(func(c *check.Checker) {
		validateServiceStatus(context.Background(), c, ingress(corev1.ServiceTypeNodePort, corev1.LoadBalancerIngress{Hostname: "a"}), old)
	}),
		[]string{"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"})
	compare(t, check.Run(func(c *check.Checker) {
		validateServiceStatus(context.Background(), c, ingress(corev1.ServiceTypeLoadBalancer,
			corev1.LoadBalancerIngress{IP: "192.0.2.1", IPMode: new(corev1.LoadBalancerIPModeVIP)},
			corev1.LoadBalancerIngress{IP: "192.0.2.1"},
			corev1.LoadBalancerIngress{Hostname: "192.0.2.1", IPMode: new(corev1.LoadBalancerIPModeVIP)},
		), old)
	}), []string{
		"status.loadBalancer.ingress[1].ipMode: Required value: must be specified when `ip` is set",
		"status.loadBalancer.ingress[2].ipMode: Forbidden: may not be specified when `ip` is not set",
		`status.loadBalancer.ingress[2].hostname: Invalid value: "192.0.2.1": must be a DNS name, not an IP address`})
}

func TestServiceWarnings(t *testing.T) {
	s := newService(headless, func(s *corev1.Service) {
		s.Spec.ExternalIPs, s.Spec.LoadBalancerIP, s.Spec.ExternalName = []string{"::ffff:1.2.3.4"}, "1.2.3.4", "a"
		s.Spec.TrafficDistribution = new("PreferClose")
	})
	want := []string{
		"spec.loadBalancerIP is ignored for headless services",
		"spec.externalIPs is ignored for headless services",
		`spec.externalIPs[0]: non-standard IP address "::ffff:1.2.3.4" is invalid: use "1.2.3.4"`,
		`spec.externalName is ignored when spec.type is not "ExternalName"`,
		`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`,
	}
	if diff := cmp.Diff(want, serviceWarnings(context.Background(), s, nil)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestServiceColumns(t *testing.T) {
	for name, tc := range map[string]struct {
		change serviceChange
		want   []any
	}{
		"plain":         {func(*corev1.Service) {}, []any{"ClusterIP", "10.96.0.7", "<none>", "80/TCP", "<none>"}},
		"external name": {func(s *corev1.Service) { externalName(s); s.Spec.Ports = nil }, []any{"ExternalName", "<none>", "db.example.com.", "<none>", "<none>"}},
		"node port": {func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalIPs, s.Spec.Selector = corev1.ServiceTypeNodePort, []string{"192.0.2.1", "192.0.2.2"}, map[string]string{"b": "2", "a": "1"}
			s.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080}, {Port: 53, Protocol: "UDP"}}
		}, []any{"NodePort", "10.96.0.7", "192.0.2.1,192.0.2.2", "80:30080/TCP,53/UDP", "a=1,b=2"}},
		"pending": {ofType(corev1.ServiceTypeLoadBalancer), []any{"LoadBalancer", "10.96.0.7", "<pending>", "80/TCP", "<none>"}},
		"load balancer": {func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"192.0.2.1"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}, {IP: "192.0.2.9"}}
		}, []any{"LoadBalancer", "10.96.0.7", "192.0.2.9,lb.example.com,192.0.2.1", "80/TCP", "<none>"}},
	} {
		var got []any
		for _, column := range serviceColumns {
			got = append(got, column.Cell(newService(tc.change)))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: cells (-want +got):\n%s", name, diff)
		}
	}
}
