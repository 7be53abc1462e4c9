// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// classAnnotation is the predecessor of spec.ingressClassName.
const classAnnotation = "kubernetes.io/ingress.class"

// Ingress routes external requests to Services.
var Ingress = generic.Kind[*networkingv1.Ingress]{
	Name: "Ingress", Plural: "ingresses", ShortNames: []string{"ing"},
	Metadata:       generic.Metadata{ValidateAsNew: true},
	New:            func() *networkingv1.Ingress { return &networkingv1.Ingress{} },
	NewList:        func() runtime.Object { return &networkingv1.IngressList{} },
	Spec:           func(i *networkingv1.Ingress) any { return &i.Spec },
	Status:         func(i *networkingv1.Ingress) any { return &i.Status },
	Validate:       validateIngress,
	ValidateUpdate: validateIngressUpdate,
	StatusUpdate:   generic.Update[*networkingv1.Ingress]{Validate: validateIngressStatus, Warnings: ingressStatusWarnings},
	Warnings:       ingressWarnings,
	Columns: []generic.Column[*networkingv1.Ingress]{
		{Name: "Class", Description: "The name of the IngressClass resource that should be used for additional configuration", Cell: func(i *networkingv1.Ingress) any { return ptr.Deref(i.Spec.IngressClassName, generic.OrNone("")) }},
		{Name: "Hosts", Description: "Hosts that incoming requests are matched against before the ingress rule", Cell: func(i *networkingv1.Ingress) any { return hostsText(i.Spec.Rules) }},
		{Name: "Address", Description: "Address is a list containing ingress points for the load-balancer", Cell: func(i *networkingv1.Ingress) any { return addressText(i.Status.LoadBalancer.Ingress) }},
		{Name: "Ports", Description: "Ports of TLS configurations that open", Cell: func(i *networkingv1.Ingress) any {
			if len(i.Spec.TLS) > 0 {
				return "80, 443"
			}
			return "80"
		}},
	},
}

func ingressWarnings(_ context.Context, i, old *networkingv1.Ingress) []string {
	if _, annotated := i.Annotations[classAnnotation]; old != nil || !annotated || i.Spec.IngressClassName != nil {
		return nil
	}
	return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)}
}

func ingressStatusWarnings(_ context.Context, i, _ *networkingv1.Ingress) []string {
	var out []string
	for n, point := range i.Status.LoadBalancer.Ingress {
		if point.IP != "" {
			out = append(out, utilvalidation.GetWarningsForIP(loadBalancerPath.Child("ingress").Index(n), point.IP)...)
		}
	}
	return out
}

// hostsText lists the hosts of up to three rules.
func hostsText(rules []networkingv1.IngressRule) string {
	const shown = 3
	var hosts []string
	more := false
	for _, rule := range rules {
		more = more || len(hosts) == shown
		if !more && rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	switch {
	case len(hosts) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", strings.Join(hosts, ","), len(rules)-shown)
	}
	return strings.Join(hosts, ",")
}

// addressText lists the distinct addresses.
func addressText(points []networkingv1.IngressLoadBalancerIngress) string {
	addresses := sets.New[string]()
	for _, point := range points {
		if address := cmp.Or(point.IP, point.Hostname); address != "" {
			addresses.Insert(address)
		}
	}
	return strings.Join(sets.List(addresses), ",")
}
