// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Endpoints is the older list of the addresses behind a Service.
var Endpoints = generic.Kind[*corev1.Endpoints]{
	Name: "Endpoints", Plural: "endpoints", ShortNames: []string{"ep"},
	Metadata: generic.Metadata{ValidateAsNew: true},
	New:      func() *corev1.Endpoints { return &corev1.Endpoints{} },
	NewList:  func() runtime.Object { return &corev1.EndpointsList{} },
	Validate: func(_ context.Context, c *check.Checker, e *corev1.Endpoints) {
		validateSubsets(c, e.Subsets, field.NewPath("subsets"))
	},
	// Values that an older version stored stay valid.
	ValidateUpdate: func(_ context.Context, c *check.Checker, e, old *corev1.Endpoints) {
		if !equality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
			validateSubsets(c, e.Subsets, field.NewPath("subsets"))
		}
	},
	Warnings:       warnEndpoints,
	CreateOnUpdate: true,
	Columns: []generic.Column[*corev1.Endpoints]{{
		Name: "Endpoints", Description: corev1.Endpoints{}.SwaggerDoc()["subsets"],
		Cell: func(e *corev1.Endpoints) any { return formatSubsets(e.Subsets) },
	}},
}

// The endpoints controller marks its objects with this label. It copies addresses, and no person reads
// its warnings.
const (
	endpointsManager    = "endpoints.kubernetes.io/managed-by"
	endpointsController = "endpoint-controller"
)

// warnEndpoints warns of addresses that are valid but not canonical.
func warnEndpoints(_ context.Context, e, _ *corev1.Endpoints) []string {
	if e.Labels[endpointsManager] == endpointsController {
		return nil
	}
	var warnings []string
	for i, subset := range e.Subsets {
		item := field.NewPath("subsets").Index(i)
		for j, address := range subset.Addresses {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(item.Child("addresses").Index(j).Child("ip"), address.IP)...)
		}
		for j, address := range subset.NotReadyAddresses {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(item.Child("notReadyAddresses").Index(j).Child("ip"), address.IP)...)
		}
	}
	return warnings
}

// shownEndpoints is the number of addresses in a cell.
const shownEndpoints = 3

func formatSubsets(subsets []corev1.EndpointSubset) string {
	if len(subsets) == 0 {
		return generic.OrNone("")
	}
	var all []string
	for _, subset := range subsets {
		if len(subset.Ports) == 0 {
			for _, address := range subset.Addresses {
				all = append(all, address.IP)
			}
		}
		for _, port := range subset.Ports {
			for _, address := range subset.Addresses {
				all = append(all, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	if len(all) <= shownEndpoints {
		return strings.Join(all, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(all[:shownEndpoints], ","), len(all)-shownEndpoints)
}

func validateSubsets(c *check.Checker, subsets []corev1.EndpointSubset, path *field.Path) {
	for i, subset := range subsets {
		item := path.Index(i)
		if len(subset.Addresses) == 0 && len(subset.NotReadyAddresses) == 0 {
			c.Required(item, "must specify `addresses` or `notReadyAddresses`")
		}
		for j, address := range subset.Addresses {
			validateEndpointAddress(c, address, item.Child("addresses").Index(j))
		}
		for j, address := range subset.NotReadyAddresses {
			validateEndpointAddress(c, address, item.Child("notReadyAddresses").Index(j))
		}
		for j, port := range subset.Ports {
			validateEndpointPort(c, port, len(subset.Ports) > 1, item.Child("ports").Index(j))
		}
	}
}

func validateEndpointAddress(c *check.Checker, address corev1.EndpointAddress, path *field.Path) {
	c.IP(path.Child("ip"), address.IP, nil)
	if address.Hostname != "" {
		c.DNSLabel(path.Child("hostname"), address.Hostname)
	}
	c.OptionalDNSSubdomain(path.Child("nodeName"), address.NodeName)
	ValidateEndpointIP(c, address.IP, path.Child("ip"))
}

// ValidateEndpointIP refuses loopback and link-local addresses: a Service must not lead to the node's
// own loopback or metadata services.
func ValidateEndpointIP(c *check.Checker, address string, path *field.Path) {
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		c.Add(field.Invalid(path, address, "must be a valid IP address").WithOrigin("format=ip-sloppy"))
		return
	}
	refuse := func(is bool, message string) {
		if is {
			c.Add(field.Invalid(path, address, message).WithOrigin("format=endpoint-ip"))
		}
	}
	refuse(ip.IsUnspecified(), fmt.Sprintf("may not be unspecified (%v)", address))
	refuse(ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	refuse(ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	refuse(ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
}

var portProtocols = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}

func validateEndpointPort(c *check.Checker, port corev1.EndpointPort, named bool, path *field.Path) {
	switch {
	case port.Name != "":
		c.DNSLabel(path.Child("name"), port.Name)
	case named:
		c.Required(path.Child("name"), "")
	}
	c.PortNumber(path.Child("port"), port.Port)
	check.RequiredOneOf(c, path.Child("protocol"), port.Protocol, portProtocols...)
	if port.AppProtocol != nil {
		c.QualifiedName(path.Child("appProtocol"), *port.AppProtocol)
	}
}
