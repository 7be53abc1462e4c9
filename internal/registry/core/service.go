// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/proxy"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kindred-project/kindred/internal/registry/generic"
	"github.com/kindred-project/kindred/internal/registry/serviceip"
)

// ServiceDependencies are what Services need besides storage.
type ServiceDependencies struct {
	// Families are the IP families of the cluster's Service addresses. The first is the default.
	Families  []corev1.IPFamily
	Addresses *serviceip.Addresses
	Ports     *serviceip.Ports
	// Slices and Pods select an endpoint for the proxy subresource.
	Slices proxy.EndpointSliceGetter
	Pods   coreclient.PodsGetter
}

// service returns the kind Service: a name, an address and ports for a changing set of pods.
// service_families.go completes the IP families, service_claims.go allocates addresses and ports,
// and service_update.go completes updates from the old Service and drops fields that a changed type
// does not use.
func service(d ServiceDependencies, nodes NodeConnections) generic.Kind[*corev1.Service] {
	claims := serviceClaims{families: families{d.Families}, addresses: d.Addresses, ports: d.Ports}
	return generic.Kind[*corev1.Service]{
		Name: "Service", Plural: "services", ShortNames: []string{"svc"}, Categories: []string{"all"},
		New:     func() *corev1.Service { return &corev1.Service{} },
		NewList: func() runtime.Object { return &corev1.ServiceList{} },
		// Names may begin with a digit (KEP-5311).
		Metadata:       generic.Metadata{ValidName: validation.NameIsDNSLabel},
		Spec:           func(s *corev1.Service) any { return &s.Spec },
		Status:         func(s *corev1.Service) any { return &s.Status },
		Generation:     generic.NoGeneration,
		CreateOnUpdate: true,
		Deletion:       generic.Deletion[*corev1.Service]{ReturnObject: true},
		Prepare:        dropUnusedByType,
		Validate:       validateService,
		ValidateUpdate: validateServiceUpdate,
		StatusUpdate:   generic.Update[*corev1.Service]{Validate: validateServiceStatus, Warnings: serviceStatusWarnings},
		Warnings:       serviceWarnings,
		Fields: map[string]func(*corev1.Service) string{
			"spec.clusterIP": func(s *corev1.Service) string { return s.Spec.ClusterIP },
			"spec.type":      func(s *corev1.Service) string { return string(s.Spec.Type) },
		},
		Columns: serviceColumns,
		Hooks: generic.Hooks[*corev1.Service]{
			BeginCreate: claims.beginCreate,
			BeginUpdate: claims.beginUpdate,
			AfterDelete: claims.afterDelete,
			Decorate:    claims.families.completeRead,
		},
		Endpoints: generic.Endpoints{Subresources: func(store *generic.Store) map[string]rest.Storage {
			return map[string]rest.Storage{"proxy": &serviceProxy{services: store, families: d.Families, slices: d.Slices, pods: d.Pods, nodes: nodes}}
		}},
	}
}

var serviceSpecDoc = corev1.ServiceSpec{}.SwaggerDoc()

var serviceColumns = []generic.Column[*corev1.Service]{
	{Name: "Type", Description: serviceSpecDoc["type"], Cell: func(s *corev1.Service) any { return string(s.Spec.Type) }},
	{Name: "Cluster-IP", Description: serviceSpecDoc["clusterIP"], Cell: func(s *corev1.Service) any {
		if len(s.Spec.ClusterIPs) == 0 {
			return generic.OrNone("")
		}
		return s.Spec.ClusterIPs[0]
	}},
	{Name: "External-IP", Description: serviceSpecDoc["externalIPs"], Cell: func(s *corev1.Service) any { return externalIPs(s) }},
	{Name: "Port(s)", Description: serviceSpecDoc["ports"], Cell: func(s *corev1.Service) any { return generic.OrNone(formatServicePorts(s.Spec.Ports)) }},
	{Name: "Selector", Wide: true, Description: serviceSpecDoc["selector"], Cell: func(s *corev1.Service) any { return labels.FormatLabels(s.Spec.Selector) }},
}

// externalIPs returns the external addresses of the Service.
func externalIPs(s *corev1.Service) string {
	given := strings.Join(s.Spec.ExternalIPs, ",")
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return generic.OrNone(given)
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
	default:
		return "<unknown>"
	}
	balancers := sets.New[string]()
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		switch {
		case ingress.IP != "":
			balancers.Insert(ingress.IP)
		case ingress.Hostname != "":
			balancers.Insert(ingress.Hostname)
		}
	}
	all := append(sets.List(balancers), s.Spec.ExternalIPs...)
	if len(all) == 0 {
		return "<pending>"
	}
	return strings.Join(all, ",")
}

func formatServicePorts(ports []corev1.ServicePort) string {
	var out []string
	for _, p := range ports {
		if p.NodePort > 0 {
			out = append(out, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			out = append(out, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return strings.Join(out, ",")
}
