// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
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

func validateService(_ context.Context, s *corev1.Service) field.ErrorList {
	return validateServiceFields(s, nil)
}

func validateServiceUpdate(_ context.Context, s, old *corev1.Service) field.ErrorList {
	errs := validateClusterIPsUpdate(s, old)
	errs = append(errs, validateIPFamiliesUpdate(s, old)...)
	if isLoadBalancer(s) && isLoadBalancer(old) && !ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(specPath.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set"))
	}
	if needsHealthCheck(s) && needsHealthCheck(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(specPath.Child("healthCheckNodePort"), "field is immutable"))
	}
	return append(errs, validateServiceFields(s, old)...)
}

// validateServiceFields checks all but the metadata and what may not change. IPs
// that old, nil on create, had already may be written as older versions let them.
func validateServiceFields(s, old *corev1.Service) field.ErrorList {
	errs := validateTopologyAnnotations(s)
	errs = append(errs, validateByType(s)...)
	errs = append(errs, validateServicePorts(s)...)
	if s.Spec.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabels(s.Spec.Selector, specPath.Child("selector"))...)
	}
	errs = append(errs, validateSessionAffinity(s)...)
	errs = append(errs, validateClusterIPs(s, old)...)
	errs = append(errs, validateExternalIPs(s, old)...)
	errs = append(errs, validateLoadBalancerFields(s, old)...)
	errs = append(errs, validateExternalTraffic(s)...)
	return append(errs, validateTrafficPolicies(s)...)
}

func validateTopologyAnnotations(s *corev1.Service) field.ErrorList {
	hints, hasHints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, hasMode := s.Annotations[corev1.AnnotationTopologyMode]
	if !hasHints || !hasMode || hints == mode {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
		fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints))}
}

// validateByType checks what each type must and must not have.
func validateByType(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(specPath.Child("ports"), ""))
	}
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP:
		for i, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				errs = append(errs, field.Forbidden(specPath.Child("ports").Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
			}
		}
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		if isHeadless(s) {
			errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), s.Spec.ClusterIPs[0], fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
		}
	case corev1.ServiceTypeExternalName:
		errs = append(errs, validateExternalName(s)...)
	case "":
		errs = append(errs, field.Required(specPath.Child("type"), ""))
	default:
		errs = append(errs, field.NotSupported(specPath.Child("type"), s.Spec.Type, serviceTypes))
	}
	return errs
}

func validateExternalName(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	forbid := func(name string, set bool) {
		if set {
			errs = append(errs, field.Forbidden(specPath.Child(name), notForExternalNames))
		}
	}
	forbid("clusterIPs", len(s.Spec.ClusterIPs) > 0)
	forbid("ipFamilies", len(s.Spec.IPFamilies) > 0)
	forbid("ipFamilyPolicy", s.Spec.IPFamilyPolicy != nil)
	path := specPath.Child("externalName")
	// A trailing dot makes a name fully qualified (RFC 1034).
	name := strings.TrimSuffix(s.Spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(path, ""))
	}
	return append(errs, invalid(path, name, utilvalidation.IsDNS1123Subdomain(name))...)
}

func validateServicePorts(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	type identity struct {
		protocol corev1.Protocol
		number   int32
	}
	names := sets.New[string]()
	ports, nodePorts := sets.New[identity](), sets.New[identity]()
	for i := range s.Spec.Ports {
		p, path := &s.Spec.Ports[i], specPath.Child("ports").Index(i)
		errs = append(errs, validateServicePort(p, len(s.Spec.Ports) > 1, path)...)
		if p.Name != "" && names.Has(p.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
		names.Insert(p.Name)
		if id := (identity{p.Protocol, p.NodePort}); p.NodePort != 0 {
			if nodePorts.Has(id) {
				errs = append(errs, field.Duplicate(path.Child("nodePort"), p.NodePort))
			}
			nodePorts.Insert(id)
		}
		id := identity{p.Protocol, p.Port}
		if ports.Has(id) {
			errs = append(errs, field.Duplicate(path, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		}
		ports.Insert(id)
	}
	return errs
}

func validateServicePort(p *corev1.ServicePort, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Name != "":
		errs = invalid(path.Child("name"), p.Name, utilvalidation.IsDNS1123Label(p.Name))
	case named:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, invalid(path.Child("port"), p.Port, utilvalidation.IsValidPortNum(int(p.Port)))...)
	switch {
	case p.Protocol == "":
		errs = append(errs, field.Required(path.Child("protocol"), ""))
	case !slices.Contains(portProtocols, p.Protocol):
		errs = append(errs, field.NotSupported(path.Child("protocol"), p.Protocol, portProtocols))
	}
	if p.TargetPort.Type == intstr.String {
		errs = append(errs, invalid(path.Child("targetPort"), p.TargetPort.StrVal, utilvalidation.IsValidPortName(p.TargetPort.StrVal))...)
	} else {
		errs = append(errs, invalid(path.Child("targetPort"), p.TargetPort.IntValue(), utilvalidation.IsValidPortNum(p.TargetPort.IntValue()))...)
	}
	if p.AppProtocol != nil {
		errs = append(errs, invalid(path.Child("appProtocol"), *p.AppProtocol, utilvalidation.IsQualifiedName(*p.AppProtocol))...)
	}
	return errs
}

func validateSessionAffinity(s *corev1.Service) field.ErrorList {
	path := specPath.Child("sessionAffinityConfig")
	config := s.Spec.SessionAffinityConfig
	switch s.Spec.SessionAffinity {
	case "":
		return field.ErrorList{field.Required(specPath.Child("sessionAffinity"), "")}
	case corev1.ServiceAffinityNone:
		if config != nil {
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone))}
		}
	case corev1.ServiceAffinityClientIP:
		return validateClientIP(config, path)
	default:
		return field.ErrorList{field.NotSupported(specPath.Child("sessionAffinity"), s.Spec.SessionAffinity, sessionAffinities)}
	}
	return nil
}

func validateClientIP(config *corev1.SessionAffinityConfig, path *field.Path) field.ErrorList {
	required := func(path *field.Path) field.ErrorList {
		return field.ErrorList{field.Required(path, fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP))}
	}
	clientIP := path.Child("clientIP")
	timeout := clientIP.Child("timeoutSeconds")
	switch {
	case config == nil:
		return required(path)
	case config.ClientIP == nil:
		return required(clientIP)
	case config.ClientIP.TimeoutSeconds == nil:
		return required(timeout)
	}
	if seconds := *config.ClientIP.TimeoutSeconds; seconds <= 0 || seconds > maxClientIPTimeout {
		return field.ErrorList{field.Invalid(timeout, config.ClientIP.TimeoutSeconds, fmt.Sprintf("must be greater than 0 and less than %d", maxClientIPTimeout))}
	}
	return nil
}

func validateExternalIPs(s, old *corev1.Service) field.ErrorList {
	var before []string
	if old != nil {
		before = old.Spec.ExternalIPs
	}
	var errs field.ErrorList
	for i, ip := range s.Spec.ExternalIPs {
		path := specPath.Child("externalIPs").Index(i)
		problems := utilvalidation.IsValidIPForLegacyField(path, ip, true, before)
		if len(problems) == 0 {
			problems = ValidateEndpointIP(ip, path)
		}
		errs = append(errs, problems...)
	}
	return errs
}

func validateLoadBalancerFields(s, old *corev1.Service) field.ErrorList {
	errs := validateSourceRanges(s, old)
	allocate := specPath.Child("allocateLoadBalancerNodePorts")
	class, classPath := s.Spec.LoadBalancerClass, specPath.Child("loadBalancerClass")
	if !isLoadBalancer(s) {
		if s.Spec.AllocateLoadBalancerNodePorts != nil {
			errs = append(errs, field.Forbidden(allocate, onlyForLoadBalancers))
		}
		if class != nil {
			errs = append(errs, field.Forbidden(classPath, onlyForLoadBalancers))
		}
		return errs
	}
	if s.Spec.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(field.NewPath("allocateLoadBalancerNodePorts"), ""))
	}
	if class != nil {
		errs = append(errs, invalid(classPath, *class, utilvalidation.IsQualifiedName(*class))...)
	}
	return errs
}

// validateSourceRanges checks the field, or else the annotation that was there
// before it. Space around a range is part of the API.
func validateSourceRanges(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		path := specPath.Child("LoadBalancerSourceRanges")
		if !isLoadBalancer(s) {
			errs = append(errs, field.Forbidden(path, onlyForLoadBalancers))
		}
		var before []string
		if old != nil {
			for _, cidr := range old.Spec.LoadBalancerSourceRanges {
				before = append(before, strings.TrimSpace(cidr))
			}
		}
		for i, cidr := range s.Spec.LoadBalancerSourceRanges {
			errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(cidr), true, before)...)
		}
		return errs
	}
	value, set := s.Annotations[loadBalancerSourceRanges]
	if !set {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(loadBalancerSourceRanges)
	if !isLoadBalancer(s) {
		errs = append(errs, field.Forbidden(path, onlyForLoadBalancers))
	}
	if old != nil && old.Annotations[loadBalancerSourceRanges] == value || strings.TrimSpace(value) == "" {
		return errs
	}
	for cidr := range strings.SplitSeq(value, ",") {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path, strings.TrimSpace(cidr), true, nil)...)
	}
	return errs
}

func validateExternalTraffic(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	policy, path := s.Spec.ExternalTrafficPolicy, specPath.Child("externalTrafficPolicy")
	switch outside := reachableFromOutside(&s.Spec); {
	case !outside && policy != "":
		errs = append(errs, field.Invalid(path, policy, "may only be set for externally-accessible services"))
	case outside && policy == "":
		errs = append(errs, field.Required(path, ""))
	case outside && !slices.Contains(externalTrafficPolicies, policy):
		errs = append(errs, field.NotSupported(path, policy, externalTrafficPolicies))
	}
	port, path := s.Spec.HealthCheckNodePort, specPath.Child("healthCheckNodePort")
	switch {
	case !needsHealthCheck(s) && port != 0:
		errs = append(errs, field.Invalid(path, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	case needsHealthCheck(s) && port == 0:
		errs = append(errs, field.Required(path, ""))
	case needsHealthCheck(s):
		errs = append(errs, invalid(path, port, utilvalidation.IsValidPortNum(int(port)))...)
	}
	return errs
}

func validateTrafficPolicies(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	policy, path := s.Spec.InternalTrafficPolicy, specPath.Child("internalTrafficPolicy")
	switch {
	case policy != nil && !slices.Contains(internalTrafficPolicies, *policy):
		errs = append(errs, field.NotSupported(path, *policy, internalTrafficPolicies))
	case policy == nil && slices.Contains(serviceTypes, s.Spec.Type) && needsClusterIP(s):
		errs = append(errs, field.Required(path, ""))
	}
	if d := s.Spec.TrafficDistribution; d != nil && !slices.Contains(trafficDistributions, *d) {
		errs = append(errs, field.NotSupported(specPath.Child("trafficDistribution"), *d, trafficDistributions))
	}
	return errs
}

var ingressIPModes = []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}

func validateServiceStatus(_ context.Context, s, old *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := s.Status.LoadBalancer.Ingress
	if !isLoadBalancer(s) && len(ingress) > 0 {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	var before []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		before = append(before, in.IP)
	}
	var errs field.ErrorList
	for i := range ingress {
		errs = append(errs, validateIngress(&ingress[i], before, path.Index(i))...)
	}
	return errs
}

func validateIngress(in *corev1.LoadBalancerIngress, before []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if in.IP != "" {
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(path.Child("ip"), in.IP, true, before)...)
	}
	switch mode := path.Child("ipMode"); {
	case in.IPMode == nil && in.IP != "":
		errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
	case in.IPMode != nil && in.IP == "":
		errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
	case in.IPMode != nil && !slices.Contains(ingressIPModes, *in.IPMode):
		errs = append(errs, field.NotSupported(mode, in.IPMode, ingressIPModes))
	}
	if in.Hostname == "" {
		return errs
	}
	errs = append(errs, invalid(path.Child("hostname"), in.Hostname, utilvalidation.IsDNS1123Subdomain(in.Hostname))...)
	if netutils.ParseIPSloppy(in.Hostname) != nil {
		errs = append(errs, field.Invalid(path.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address"))
	}
	return errs
}

// serviceWarnings tell of what is accepted and deprecated or without effect.
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
