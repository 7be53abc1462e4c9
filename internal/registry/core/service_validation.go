// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

var (
	serviceTypes            = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort}
	sessionAffinities       = []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone}
	externalTrafficPolicies = []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal}
	internalTrafficPolicies = []corev1.ServiceInternalTrafficPolicy{corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal}
	trafficDistributions    = []string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode}

	specPath                 = field.NewPath("spec")
	onlyForLoadBalancers     = "may only be used when `type` is 'LoadBalancer'"
	notForExternalNames      = "may not be set for ExternalName services"
	loadBalancerSourceRanges = corev1.AnnotationLoadBalancerSourceRangesKey
)

// maxClientIPTimeout is a day, in seconds.
const maxClientIPTimeout = 86400

func validateService(_ context.Context, c *check.Checker, s *corev1.Service) {
	validateServiceFields(c, s, nil)
}

func validateServiceUpdate(_ context.Context, c *check.Checker, s, old *corev1.Service) {
	validateClusterIPsUpdate(c, s, old)
	validateIPFamiliesUpdate(c, s, old)
	if isLoadBalancer(s) && isLoadBalancer(old) && !ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		c.Invalid(specPath.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set")
	}
	if needsHealthCheck(s) && needsHealthCheck(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		c.Forbidden(specPath.Child("healthCheckNodePort"), "field is immutable")
	}
	validateServiceFields(c, s, old)
}

// validateServiceFields checks everything but metadata and immutability. Addresses that old, nil on
// create, has may stay in the form that older versions accepted.
func validateServiceFields(c *check.Checker, s, old *corev1.Service) {
	validateTopologyAnnotations(c, s)
	validateByType(c, s)
	validateServicePorts(c, s)
	if s.Spec.Selector != nil {
		c.Labels(specPath.Child("selector"), s.Spec.Selector)
	}
	validateSessionAffinity(c, s)
	validateClusterIPs(c, s, old)
	validateExternalIPs(c, s, old)
	validateLoadBalancerFields(c, s, old)
	validateExternalTraffic(c, s)
	validateTrafficPolicies(c, s)
}

func validateTopologyAnnotations(c *check.Checker, s *corev1.Service) {
	hints, hasHints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, hasMode := s.Annotations[corev1.AnnotationTopologyMode]
	if !hasHints || !hasMode || hints == mode {
		return
	}
	c.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
		fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints))
}

// validateByType checks the fields that a type requires or forbids.
func validateByType(c *check.Checker, s *corev1.Service) {
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		c.Required(specPath.Child("ports"), "")
	}
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP:
		for i, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				c.Forbidden(specPath.Child("ports").Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'")
			}
		}
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		if isHeadless(s) {
			c.Invalid(specPath.Child("clusterIPs").Index(0), s.Spec.ClusterIPs[0], fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type))
		}
	case corev1.ServiceTypeExternalName:
		validateExternalName(c, s)
	case "":
		c.Required(specPath.Child("type"), "")
	default:
		check.OneOf(c, specPath.Child("type"), s.Spec.Type, serviceTypes...)
	}
}

func validateExternalName(c *check.Checker, s *corev1.Service) {
	forbid := func(name string, set bool) {
		if set {
			c.Forbidden(specPath.Child(name), notForExternalNames)
		}
	}
	forbid("clusterIPs", len(s.Spec.ClusterIPs) > 0)
	forbid("ipFamilies", len(s.Spec.IPFamilies) > 0)
	forbid("ipFamilyPolicy", s.Spec.IPFamilyPolicy != nil)
	path := specPath.Child("externalName")
	// A trailing dot makes a name fully qualified (RFC 1034).
	name := strings.TrimSuffix(s.Spec.ExternalName, ".")
	if name == "" {
		c.Required(path, "")
		return
	}
	c.DNSSubdomain(path, name)
}

func validateServicePorts(c *check.Checker, s *corev1.Service) {
	type identity struct {
		protocol corev1.Protocol
		number   int32
	}
	names := sets.New[string]()
	ports, nodePorts := sets.New[identity](), sets.New[identity]()
	for i := range s.Spec.Ports {
		p, path := &s.Spec.Ports[i], specPath.Child("ports").Index(i)
		validateServicePort(c, p, len(s.Spec.Ports) > 1, path)
		if p.Name != "" && names.Has(p.Name) {
			c.Duplicate(path.Child("name"), p.Name)
		}
		names.Insert(p.Name)
		if id := (identity{p.Protocol, p.NodePort}); p.NodePort != 0 {
			if nodePorts.Has(id) {
				c.Duplicate(path.Child("nodePort"), p.NodePort)
			}
			nodePorts.Insert(id)
		}
		id := identity{p.Protocol, p.Port}
		if ports.Has(id) {
			c.Duplicate(path, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port})
		}
		ports.Insert(id)
	}
}

func validateServicePort(c *check.Checker, p *corev1.ServicePort, named bool, path *field.Path) {
	switch {
	case p.Name != "":
		c.DNSLabel(path.Child("name"), p.Name)
	case named:
		c.Required(path.Child("name"), "")
	}
	c.PortNumber(path.Child("port"), p.Port)
	check.RequiredOneOf(c, path.Child("protocol"), p.Protocol, portProtocols...)
	c.PortNumberOrName(path.Child("targetPort"), p.TargetPort)
	if p.AppProtocol != nil {
		c.QualifiedName(path.Child("appProtocol"), *p.AppProtocol)
	}
}

func validateSessionAffinity(c *check.Checker, s *corev1.Service) {
	path := specPath.Child("sessionAffinityConfig")
	config := s.Spec.SessionAffinityConfig
	switch s.Spec.SessionAffinity {
	case "":
		c.Required(specPath.Child("sessionAffinity"), "")
	case corev1.ServiceAffinityNone:
		if config != nil {
			c.Forbidden(path, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone))
		}
	case corev1.ServiceAffinityClientIP:
		validateClientIP(c, config, path)
	default:
		check.OneOf(c, specPath.Child("sessionAffinity"), s.Spec.SessionAffinity, sessionAffinities...)
	}
}

func validateClientIP(c *check.Checker, config *corev1.SessionAffinityConfig, path *field.Path) {
	required := func(path *field.Path) {
		c.Required(path, fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP))
	}
	clientIP := path.Child("clientIP")
	timeout := clientIP.Child("timeoutSeconds")
	switch {
	case config == nil:
		required(path)
		return
	case config.ClientIP == nil:
		required(clientIP)
		return
	case config.ClientIP.TimeoutSeconds == nil:
		required(timeout)
		return
	}
	if seconds := *config.ClientIP.TimeoutSeconds; seconds <= 0 || seconds > maxClientIPTimeout {
		c.Invalid(timeout, config.ClientIP.TimeoutSeconds, fmt.Sprintf("must be greater than 0 and less than %d", maxClientIPTimeout))
	}
}

func validateExternalIPs(c *check.Checker, s, old *corev1.Service) {
	var before []string
	if old != nil {
		before = old.Spec.ExternalIPs
	}
	for i, ip := range s.Spec.ExternalIPs {
		path := specPath.Child("externalIPs").Index(i)
		if c.Passes(func() { c.IP(path, ip, before) }) {
			ValidateEndpointIP(c, ip, path)
		}
	}
}

func validateLoadBalancerFields(c *check.Checker, s, old *corev1.Service) {
	validateSourceRanges(c, s, old)
	allocate := specPath.Child("allocateLoadBalancerNodePorts")
	class, classPath := s.Spec.LoadBalancerClass, specPath.Child("loadBalancerClass")
	if !isLoadBalancer(s) {
		if s.Spec.AllocateLoadBalancerNodePorts != nil {
			c.Forbidden(allocate, onlyForLoadBalancers)
		}
		if class != nil {
			c.Forbidden(classPath, onlyForLoadBalancers)
		}
		return
	}
	if s.Spec.AllocateLoadBalancerNodePorts == nil {
		c.Required(field.NewPath("allocateLoadBalancerNodePorts"), "")
	}
	if class != nil {
		c.QualifiedName(classPath, *class)
	}
}

// validateSourceRanges checks the field, or else the annotation that preceded it. Space around a
// range is valid.
func validateSourceRanges(c *check.Checker, s, old *corev1.Service) {
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		path := specPath.Child("LoadBalancerSourceRanges")
		if !isLoadBalancer(s) {
			c.Forbidden(path, onlyForLoadBalancers)
		}
		var before []string
		if old != nil {
			for _, cidr := range old.Spec.LoadBalancerSourceRanges {
				before = append(before, strings.TrimSpace(cidr))
			}
		}
		for i, cidr := range s.Spec.LoadBalancerSourceRanges {
			c.CIDR(path.Index(i), strings.TrimSpace(cidr), before)
		}
		return
	}
	value, set := s.Annotations[loadBalancerSourceRanges]
	if !set {
		return
	}
	path := field.NewPath("metadata", "annotations").Key(loadBalancerSourceRanges)
	if !isLoadBalancer(s) {
		c.Forbidden(path, onlyForLoadBalancers)
	}
	if old != nil && old.Annotations[loadBalancerSourceRanges] == value || strings.TrimSpace(value) == "" {
		return
	}
	for cidr := range strings.SplitSeq(value, ",") {
		c.CIDR(path, strings.TrimSpace(cidr), nil)
	}
}

func validateExternalTraffic(c *check.Checker, s *corev1.Service) {
	policy, path := s.Spec.ExternalTrafficPolicy, specPath.Child("externalTrafficPolicy")
	switch outside := reachableFromOutside(&s.Spec); {
	case !outside && policy != "":
		c.Invalid(path, policy, "may only be set for externally-accessible services")
	case outside:
		check.RequiredOneOf(c, path, policy, externalTrafficPolicies...)
	}
	port, path := s.Spec.HealthCheckNodePort, specPath.Child("healthCheckNodePort")
	switch {
	case !needsHealthCheck(s) && port != 0:
		c.Invalid(path, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	case needsHealthCheck(s) && port == 0:
		c.Required(path, "")
	case needsHealthCheck(s):
		c.PortNumber(path, port)
	}
}

func validateTrafficPolicies(c *check.Checker, s *corev1.Service) {
	policy, path := s.Spec.InternalTrafficPolicy, specPath.Child("internalTrafficPolicy")
	if policy == nil && slices.Contains(serviceTypes, s.Spec.Type) && needsClusterIP(s) {
		c.Required(path, "")
	}
	check.OptionalOneOf(c, path, policy, internalTrafficPolicies...)
	check.OptionalOneOf(c, specPath.Child("trafficDistribution"), s.Spec.TrafficDistribution, trafficDistributions...)
}

var ingressIPModes = []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}

func validateServiceStatus(_ context.Context, c *check.Checker, s, old *corev1.Service) {
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := s.Status.LoadBalancer.Ingress
	if !isLoadBalancer(s) && len(ingress) > 0 {
		c.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
		return
	}
	var before []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		before = append(before, in.IP)
	}
	for i := range ingress {
		validateIngress(c, &ingress[i], before, path.Index(i))
	}
}

func validateIngress(c *check.Checker, in *corev1.LoadBalancerIngress, before []string, path *field.Path) {
	if in.IP != "" {
		c.IP(path.Child("ip"), in.IP, before)
	}
	switch mode := path.Child("ipMode"); {
	case in.IPMode == nil && in.IP != "":
		c.Required(mode, "must be specified when `ip` is set")
	case in.IPMode != nil && in.IP == "":
		c.Forbidden(mode, "may not be specified when `ip` is not set")
	case in.IPMode != nil && !slices.Contains(ingressIPModes, *in.IPMode):
		c.Add(field.NotSupported(mode, in.IPMode, ingressIPModes))
	}
	if in.Hostname == "" {
		return
	}
	c.DNSSubdomain(path.Child("hostname"), in.Hostname)
	if netutils.ParseIPSloppy(in.Hostname) != nil {
		c.Invalid(path.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address")
	}
}

// serviceWarnings warns about valid fields that are deprecated or have no effect.
func serviceWarnings(_ context.Context, s, _ *corev1.Service) []string {
	var warnings []string
	warn := func(is bool, text string) {
		if is {
			warnings = append(warnings, text)
		}
	}
	spec := &s.Spec
	externalName := spec.Type == corev1.ServiceTypeExternalName
	headless := spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone
	_, hints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	warn(hints, fmt.Sprintf("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		warnings = append(warnings, warnEach(spec.ClusterIPs, specPath.Child("clusterIPs"), utilvalidation.GetWarningsForIP)...)
	}
	warn(headless && spec.LoadBalancerIP != "", "spec.loadBalancerIP is ignored for headless services")
	warn(headless && len(spec.ExternalIPs) > 0, "spec.externalIPs is ignored for headless services")
	warn(headless && spec.SessionAffinity != corev1.ServiceAffinityNone, "spec.SessionAffinity is ignored for headless services")
	warnings = append(warnings, warnEach(spec.ExternalIPs, specPath.Child("externalIPs"), utilvalidation.GetWarningsForIP)...)
	warn(len(spec.ExternalIPs) > 0 && !headless && !externalName, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	if spec.LoadBalancerIP != "" {
		warnings = append(warnings, utilvalidation.GetWarningsForIP(specPath.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	warnings = append(warnings, warnEach(spec.LoadBalancerSourceRanges, specPath.Child("loadBalancerSourceRanges"), utilvalidation.GetWarningsForCIDR)...)
	warn(externalName && len(spec.ExternalIPs) > 0, fmt.Sprintf("spec.externalIPs is ignored when spec.type is %q", corev1.ServiceTypeExternalName))
	warn(!externalName && spec.ExternalName != "", fmt.Sprintf("spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName))
	warn(ptr.Deref(spec.TrafficDistribution, "") == corev1.ServiceTrafficDistributionPreferClose,
		fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q", corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	return warnings
}

func serviceStatusWarnings(_ context.Context, s, _ *corev1.Service) []string {
	var warnings []string
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), in.IP)...)
		}
	}
	return warnings
}

func warnEach(values []string, path *field.Path, warn func(*field.Path, string) []string) []string {
	var warnings []string
	for i, value := range values {
		warnings = append(warnings, warn(path.Index(i), value)...)
	}
	return warnings
}
