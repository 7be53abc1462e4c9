// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// Controller is the name in IngressClasses and GatewayClasses whose objects Kindred serves.
const Controller = "kindred.dev/ingress"

// Ports are those where Ingresses are served.
type Ports struct{ HTTP, HTTPS uint16 }

// classAnnotation names the class of an Ingress that was written before spec.ingressClassName existed.
const classAnnotation = "kubernetes.io/ingress.class"

// Ours returns the Ingresses of Kindred's classes, the oldest first.
func Ours(all []*networkingv1.Ingress, classes []*networkingv1.IngressClass) []*networkingv1.Ingress {
	served := map[string]bool{}
	for _, c := range classes {
		served[c.Name] = c.Spec.Controller == Controller
	}
	ours := slices.DeleteFunc(slices.Clone(all), func(i *networkingv1.Ingress) bool { return !served[className(i)] || i.DeletionTimestamp != nil })
	slices.SortFunc(ours, func(a, b *networkingv1.Ingress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(nameOf(a), nameOf(b)))
	})
	return ours
}

func className(i *networkingv1.Ingress) string {
	if i.Spec.IngressClassName != nil {
		return *i.Spec.IngressClassName
	}
	return i.Annotations[classAnnotation]
}

func nameOf(i *networkingv1.Ingress) string { return "Ingress " + i.Namespace + "/" + i.Name }

// Ingresses compiles Ingresses to two listeners with the same rules, for HTTP and for HTTPS. What cannot be served is
// a Problem, and its requests are refused with the same text.
func Ingresses(ingresses []*networkingv1.Ingress, ports Ports, objects Objects) ([]route.Listener, []Problem) {
	c := ingressCompiler{objects: objects}
	for _, i := range ingresses {
		c.add(i)
	}
	return []route.Listener{
		{Port: ports.HTTP, Protocol: route.HTTP, Rules: c.rules},
		{Port: ports.HTTPS, Protocol: route.HTTPS, Rules: slices.Clone(c.rules), Certificates: c.certificates},
	}, c.problems
}

type ingressCompiler struct {
	objects      Objects
	rules        []route.Rule
	certificates []route.Certificate
	problems     []Problem
}

func (c *ingressCompiler) add(i *networkingv1.Ingress) {
	c.addCertificates(i)
	if i.Spec.DefaultBackend != nil {
		c.rule(i, "", route.Path{Value: "/"}, i.Spec.DefaultBackend, 1)
	}
	for _, r := range i.Spec.Rules {
		host := strings.ToLower(r.Host)
		if r.HTTP == nil {
			if i.Spec.DefaultBackend != nil {
				c.rule(i, host, route.Path{Value: "/"}, i.Spec.DefaultBackend, 0)
			}
			continue
		}
		for n := range r.HTTP.Paths {
			p := &r.HTTP.Paths[n]
			c.rule(i, host, ingressPath(p), &p.Backend, 0)
		}
	}
}

// ingressPath returns the condition of a path. The type ImplementationSpecific is Prefix here, as in ingress-nginx.
func ingressPath(p *networkingv1.HTTPIngressPath) route.Path {
	path := route.Path{Value: cmp.Or(p.Path, "/")}
	if p.PathType != nil && *p.PathType == networkingv1.PathTypeExact {
		path.Type = route.Exact
	}
	return path
}

func (c *ingressCompiler) rule(i *networkingv1.Ingress, host string, path route.Path, to *networkingv1.IngressBackend, rank int) {
	c.rules = append(c.rules, route.Rule{
		Host: host, OneLabel: true, Match: route.Match{Path: path},
		Order:  route.Order{Rank: rank, Created: i.CreationTimestamp.Time, Name: nameOf(i), Index: len(c.rules)},
		Action: &route.Action{Object: nameOf(i), Backends: []route.Backend{c.backend(i, to)}},
	})
}

func (c *ingressCompiler) backend(i *networkingv1.Ingress, to *networkingv1.IngressBackend) route.Backend {
	found, err := c.find(i.Namespace, to)
	if err == nil {
		return found
	}
	c.problem(i, "BackendUnavailable", err.Error())
	return route.Backend{Weight: 1, Refusal: &route.Refusal{Status: http.StatusServiceUnavailable, Text: nameOf(i) + ": " + err.Error()}}
}

func (c *ingressCompiler) find(namespace string, to *networkingv1.IngressBackend) (route.Backend, error) {
	if to.Service == nil {
		return route.Backend{}, fmt.Errorf("the backend is a resource, and only Services are supported")
	}
	port := to.Service.Port
	found, err := c.objects.backend(namespace, to.Service.Name, func(p v1.ServicePort) bool {
		if port.Name != "" {
			return p.Name == port.Name
		}
		return p.Port == port.Number
	})
	if err != nil && port.Name != "" {
		return found, fmt.Errorf("port %q: %w", port.Name, err)
	}
	if err != nil {
		return found, fmt.Errorf("port %d: %w", port.Number, err)
	}
	return found, nil
}

// addCertificates adds the certificates of an Ingress, each for its hosts. Without hosts it is for all names, which the
// API calls the default.
func (c *ingressCompiler) addCertificates(i *networkingv1.Ingress) {
	for _, t := range i.Spec.TLS {
		if t.SecretName == "" {
			continue // the certificate of another Ingress is used
		}
		certificate, err := c.objects.certificate(i.Namespace, t.SecretName)
		if err != nil {
			c.problem(i, "CertificateUnavailable", err.Error())
			continue
		}
		hosts := t.Hosts
		if len(hosts) == 0 {
			hosts = []string{""}
		}
		for _, host := range hosts {
			c.certificates = append(c.certificates, route.Certificate{Host: strings.ToLower(host), Certificate: certificate})
		}
	}
}

func (c *ingressCompiler) problem(i *networkingv1.Ingress, reason, message string) {
	for _, p := range c.problems {
		if p.UID == i.UID && p.Message == message && p.Reason == reason {
			return
		}
	}
	c.problems = append(c.problems, Problem{Object: i, UID: i.UID, Reason: reason, Message: message})
}
