// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kindred-project/kindred/internal/registry/check"
)

var (
	loadBalancerPath = field.NewPath("status", "loadBalancer")

	pathTypes    = []networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}
	noSuchInPath = []string{"//", "/./", "/../", "%2f", "%2F"}
	noSuchAtEnd  = []string{"/..", "/."}
)

// ingressRules checks the spec of an Ingress. An update may keep values that older versions
// accepted.
type ingressRules struct {
	anySecretName    bool
	anyWildcardPaths bool
}

func validateIngress(_ context.Context, c *check.Checker, i *networkingv1.Ingress) {
	ingressRules{}.spec(c, &i.Spec, field.NewPath("spec"))
	class, annotated := i.Annotations[classAnnotation]
	if annotated && i.Spec.IngressClassName != nil && class != *i.Spec.IngressClassName {
		c.Invalid(field.NewPath("annotations").Child(classAnnotation), class, "must match `ingressClassName` when both are specified")
	}
}

func validateIngressUpdate(_ context.Context, c *check.Checker, i, old *networkingv1.Ingress) {
	var rules ingressRules
	for _, tls := range old.Spec.TLS {
		rules.anySecretName = rules.anySecretName || len(secretNameProblems(tls.SecretName)) > 0
	}
	for _, rule := range old.Spec.Rules {
		rules.anyWildcardPaths = rules.anyWildcardPaths || isWildcard(rule.Host) && len(check.Run(func(c *check.Checker) { validateHTTP(c, rule.HTTP, nil) })) > 0
	}
	rules.spec(c, &i.Spec, field.NewPath("spec"))
}

func (r ingressRules) spec(c *check.Checker, spec *networkingv1.IngressSpec, path *field.Path) {
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		c.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified")
	}
	if spec.DefaultBackend != nil {
		validateBackend(c, spec.DefaultBackend, path.Child("defaultBackend"))
	}
	for i := range spec.Rules {
		r.rule(c, &spec.Rules[i], path.Child("rules").Index(i))
	}
	for i := range spec.TLS {
		r.tls(c, &spec.TLS[i], path.Child("tls").Index(i))
	}
	c.OptionalDNSSubdomain(path.Child("ingressClassName"), spec.IngressClassName)
}

func (r ingressRules) rule(c *check.Checker, rule *networkingv1.IngressRule, path *field.Path) {
	if rule.Host != "" {
		if netutils.ParseIPSloppy(rule.Host) != nil {
			c.Add(notAnAddress(path.Child("host"), rule.Host))
		}
		c.Invalid(path.Child("host"), rule.Host, hostProblems(rule.Host)...)
	}
	if r.anyWildcardPaths && isWildcard(rule.Host) {
		return
	}
	validateHTTP(c, rule.HTTP, path.Child("http"))
}

func (r ingressRules) tls(c *check.Checker, tls *networkingv1.IngressTLS, path *field.Path) {
	for i, host := range tls.Hosts {
		c.Invalid(path.Child("hosts").Index(i), host, hostProblems(host)...)
	}
	if !r.anySecretName {
		c.Invalid(path.Child("secretName"), tls.SecretName, secretNameProblems(tls.SecretName)...)
	}
}

func secretNameProblems(name string) []string {
	if name == "" {
		return nil
	}
	return apivalidation.NameIsDNSSubdomain(name, false)
}

func isWildcard(host string) bool { return strings.Contains(host, "*") }

func hostProblems(host string) []string {
	if isWildcard(host) {
		return utilvalidation.IsWildcardDNS1123Subdomain(host)
	}
	return utilvalidation.IsDNS1123Subdomain(host)
}

func notAnAddress(path *field.Path, host string) *field.Error {
	return field.Invalid(path, host, "must be a DNS name, not an IP address")
}

func validateHTTP(c *check.Checker, http *networkingv1.HTTPIngressRuleValue, path *field.Path) {
	if http == nil {
		return
	}
	if len(http.Paths) == 0 {
		c.Required(path.Child("paths"), "")
	}
	for i := range http.Paths {
		validateIngressPath(c, &http.Paths[i], path.Child("paths").Index(i))
	}
}

func validateIngressPath(c *check.Checker, p *networkingv1.HTTPIngressPath, path *field.Path) {
	if p.PathType == nil {
		c.Required(path.Child("pathType"), "pathType must be specified")
		return
	}
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		c.Invalid(path.Child("path"), p.Path, strictPathProblems(p.Path)...)
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" {
			c.Invalid(path.Child("path"), p.Path, absolutePathProblems(p.Path)...)
		}
	default:
		check.OneOf(c, path.Child("pathType"), *p.PathType, pathTypes...)
	}
	validateBackend(c, &p.Backend, path.Child("backend"))
}

func absolutePathProblems(path string) []string {
	if strings.HasPrefix(path, "/") {
		return nil
	}
	return []string{"must be an absolute path"}
}

// strictPathProblems requires a path that all proxies interpret in the same way.
func strictPathProblems(path string) []string {
	problems := absolutePathProblems(path)
	for _, part := range noSuchInPath {
		if strings.Contains(path, part) {
			problems = append(problems, fmt.Sprintf("must not contain '%s'", part))
		}
	}
	for _, end := range noSuchAtEnd {
		if strings.HasSuffix(path, end) {
			problems = append(problems, fmt.Sprintf("cannot end with '%s'", end))
		}
	}
	return problems
}

func validateBackend(c *check.Checker, backend *networkingv1.IngressBackend, path *field.Path) {
	switch {
	case backend.Resource != nil && backend.Service != nil:
		c.Invalid(path, "", "cannot set both resource and service backends")
		return
	case backend.Resource != nil:
		validateResourceBackend(c, backend.Resource, path.Child("resource"))
		return
	case backend.Service != nil:
		validateServiceBackend(c, backend.Service, path)
		return
	}
	c.Invalid(path, "", "resource or service backend is required")
}

func validateResourceBackend(c *check.Checker, ref *corev1.TypedLocalObjectReference, path *field.Path) {
	c.OptionalDNSSubdomain(path.Child("apiGroup"), ref.APIGroup)
	validateSegment(c, ref.Kind, path.Child("kind"))
	validateSegment(c, ref.Name, path.Child("name"))
}

// validateSegment requires a name that can be a segment of a URL path.
func validateSegment(c *check.Checker, name string, path *field.Path) {
	if c.NonEmpty(path, name) {
		c.Invalid(path, name, content.IsPathSegmentName(name)...)
	}
}

// validateServiceBackend reports a missing port, or two ports, at the path of the backend.
func validateServiceBackend(c *check.Checker, service *networkingv1.IngressServiceBackend, backend *field.Path) {
	path := backend.Child("service")
	if service.Name == "" {
		c.Required(path.Child("name"), "")
	} else {
		c.Invalid(path.Child("name"), service.Name, apivalidation.NameIsDNSLabel(service.Name, false)...)
	}
	name, number := service.Port.Name, service.Port.Number
	switch {
	case name != "" && number != 0:
		c.Invalid(backend, "", "cannot set both port name & port number")
		return
	case name != "":
		c.Invalid(path.Child("port", "name"), name, utilvalidation.IsValidPortName(name)...)
		return
	case number != 0:
		c.PortNumber(path.Child("port", "number"), number)
		return
	}
	c.Required(backend, "port name or number is required")
}

func validateIngressStatus(_ context.Context, c *check.Checker, i, old *networkingv1.Ingress) {
	var known []string
	for _, point := range old.Status.LoadBalancer.Ingress {
		if point.IP != "" {
			known = append(known, point.IP)
		}
	}
	for n, point := range i.Status.LoadBalancer.Ingress {
		path := loadBalancerPath.Child("ingress").Index(n)
		if point.IP != "" {
			c.Add(utilvalidation.IsValidIPForLegacyField(path.Child("ip"), point.IP, strict, known)...)
		}
		if host := point.Hostname; host != "" {
			c.DNSSubdomain(path.Child("hostname"), host)
			if netutils.ParseIPSloppy(host) != nil {
				c.Add(notAnAddress(path.Child("hostname"), host))
			}
		}
	}
}
