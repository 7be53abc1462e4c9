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

	"github.com/kindred-project/kindred/internal/registry/generic"
)

var (
	loadBalancerPath = field.NewPath("status", "loadBalancer")

	pathTypes    = []networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}
	noSuchInPath = []string{"//", "/./", "/../", "%2f", "%2F"}
	noSuchAtEnd  = []string{"/..", "/."}
)

// ingressRules are the rules of an Ingress's spec. An update may keep what an
// older server has let in.
type ingressRules struct {
	anySecretName    bool
	anyWildcardPaths bool
}

func validateIngress(_ context.Context, i *networkingv1.Ingress) field.ErrorList {
	errs := ingressRules{}.spec(&i.Spec, field.NewPath("spec"))
	class, annotated := i.Annotations[classAnnotation]
	if annotated && i.Spec.IngressClassName != nil && class != *i.Spec.IngressClassName {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(classAnnotation), class, "must match `ingressClassName` when both are specified"))
	}
	return errs
}

func validateIngressUpdate(_ context.Context, i, old *networkingv1.Ingress) field.ErrorList {
	var rules ingressRules
	for _, tls := range old.Spec.TLS {
		rules.anySecretName = rules.anySecretName || len(secretNameProblems(tls.SecretName)) > 0
	}
	for _, rule := range old.Spec.Rules {
		rules.anyWildcardPaths = rules.anyWildcardPaths || isWildcard(rule.Host) && len(validateHTTP(rule.HTTP, nil)) > 0
	}
	return rules.spec(&i.Spec, field.NewPath("spec"))
}

func (r ingressRules) spec(spec *networkingv1.IngressSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for i := range spec.Rules {
		errs = append(errs, r.rule(&spec.Rules[i], path.Child("rules").Index(i))...)
	}
	for i := range spec.TLS {
		errs = append(errs, r.tls(&spec.TLS[i], path.Child("tls").Index(i))...)
	}
	if name := spec.IngressClassName; name != nil {
		errs = append(errs, generic.Invalid(path.Child("ingressClassName"), *name, apivalidation.NameIsDNSSubdomain(*name, false))...)
	}
	return errs
}

func (r ingressRules) rule(rule *networkingv1.IngressRule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rule.Host != "" {
		if netutils.ParseIPSloppy(rule.Host) != nil {
			errs = append(errs, notAnAddress(path.Child("host"), rule.Host))
		}
		errs = append(errs, generic.Invalid(path.Child("host"), rule.Host, hostProblems(rule.Host))...)
	}
	if r.anyWildcardPaths && isWildcard(rule.Host) {
		return errs
	}
	return append(errs, validateHTTP(rule.HTTP, path.Child("http"))...)
}

func (r ingressRules) tls(tls *networkingv1.IngressTLS, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, host := range tls.Hosts {
		errs = append(errs, generic.Invalid(path.Child("hosts").Index(i), host, hostProblems(host))...)
	}
	if r.anySecretName {
		return errs
	}
	return append(errs, generic.Invalid(path.Child("secretName"), tls.SecretName, secretNameProblems(tls.SecretName))...)
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

func validateHTTP(http *networkingv1.HTTPIngressRuleValue, path *field.Path) field.ErrorList {
	if http == nil {
		return nil
	}
	var errs field.ErrorList
	if len(http.Paths) == 0 {
		errs = append(errs, field.Required(path.Child("paths"), ""))
	}
	for i := range http.Paths {
		errs = append(errs, validateIngressPath(&http.Paths[i], path.Child("paths").Index(i))...)
	}
	return errs
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	var errs field.ErrorList
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		errs = generic.Invalid(path.Child("path"), p.Path, strictPathProblems(p.Path))
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" {
			errs = generic.Invalid(path.Child("path"), p.Path, absolutePathProblems(p.Path))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("pathType"), *p.PathType, pathTypes))
	}
	return append(errs, validateBackend(&p.Backend, path.Child("backend"))...)
}

func absolutePathProblems(path string) []string {
	if strings.HasPrefix(path, "/") {
		return nil
	}
	return []string{"must be an absolute path"}
}

// strictPathProblems wants a path that every proxy reads alike.
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

func validateBackend(backend *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case backend.Resource != nil && backend.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case backend.Resource != nil:
		return validateResourceBackend(backend.Resource, path.Child("resource"))
	case backend.Service != nil:
		return validateServiceBackend(backend.Service, path)
	}
	return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
}

func validateResourceBackend(ref *corev1.TypedLocalObjectReference, path *field.Path) field.ErrorList {
	errs := validateAPIGroup(ref.APIGroup, path)
	errs = append(errs, segment(path.Child("kind"), ref.Kind)...)
	return append(errs, segment(path.Child("name"), ref.Name)...)
}

func validateAPIGroup(group *string, path *field.Path) field.ErrorList {
	if group == nil {
		return nil
	}
	return generic.Invalid(path.Child("apiGroup"), *group, utilvalidation.IsDNS1123Subdomain(*group))
}

// segment is a required name that stands between two slashes of a path.
func segment(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return generic.Invalid(path, name, content.IsPathSegmentName(name))
}

// validateServiceBackend reports the lack of a port, or two of them, at the
// backend itself.
func validateServiceBackend(service *networkingv1.IngressServiceBackend, backend *field.Path) field.ErrorList {
	path := backend.Child("service")
	var errs field.ErrorList
	if service.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, generic.Invalid(path.Child("name"), service.Name, apivalidation.NameIsDNSLabel(service.Name, false))...)
	}
	name, number := service.Port.Name, service.Port.Number
	switch {
	case name != "" && number != 0:
		return append(errs, field.Invalid(backend, "", "cannot set both port name & port number"))
	case name != "":
		return append(errs, generic.Invalid(path.Child("port", "name"), name, utilvalidation.IsValidPortName(name))...)
	case number != 0:
		return append(errs, generic.Invalid(path.Child("port", "number"), number, utilvalidation.IsValidPortNum(int(number)))...)
	}
	return append(errs, field.Required(backend, "port name or number is required"))
}

func validateIngressStatus(_ context.Context, i, old *networkingv1.Ingress) field.ErrorList {
	var known []string
	for _, point := range old.Status.LoadBalancer.Ingress {
		if point.IP != "" {
			known = append(known, point.IP)
		}
	}
	var errs field.ErrorList
	for n, point := range i.Status.LoadBalancer.Ingress {
		path := loadBalancerPath.Child("ingress").Index(n)
		if point.IP != "" {
			errs = append(errs, utilvalidation.IsValidIPForLegacyField(path.Child("ip"), point.IP, strict, known)...)
		}
		if host := point.Hostname; host != "" {
			errs = append(errs, generic.Invalid(path.Child("hostname"), host, utilvalidation.IsDNS1123Subdomain(host))...)
			if netutils.ParseIPSloppy(host) != nil {
				errs = append(errs, notAnAddress(path.Child("hostname"), host))
			}
		}
	}
	return errs
}
