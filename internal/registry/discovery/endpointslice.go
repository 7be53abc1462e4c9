// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is discovery.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     discoveryv1.GroupName,
		Priority: 16200,
		Scheme:   []func(*runtime.Scheme) error{discoveryv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{EndpointSlice}}},
	}
}

var sliceDoc = discoveryv1.EndpointSlice{}.SwaggerDoc()

// EndpointSlice holds some of the endpoints of a Service.
var EndpointSlice = generic.Kind[*discoveryv1.EndpointSlice]{
	Name: "EndpointSlice", Plural: "endpointslices",
	Metadata:       generic.Metadata{ValidateAsNew: true},
	New:            func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
	NewList:        func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
	Prepare:        prepareSlice,
	Validate:       func(_ context.Context, c *check.Checker, s *discoveryv1.EndpointSlice) { validateSlice(c, s, nil) },
	ValidateUpdate: validateSliceUpdate,
	Warnings:       sliceWarnings,
	Columns: []generic.Column[*discoveryv1.EndpointSlice]{
		{Name: "AddressType", Description: sliceDoc["addressType"], Cell: func(s *discoveryv1.EndpointSlice) any { return string(s.AddressType) }},
		{Name: "Ports", Description: sliceDoc["ports"], Cell: func(s *discoveryv1.EndpointSlice) any { return formatPorts(s.Ports) }},
		{Name: "Endpoints", Description: sliceDoc["endpoints"], Cell: func(s *discoveryv1.EndpointSlice) any { return formatEndpoints(s.Endpoints) }},
	},
}

func SetDefaults_EndpointPort(obj *discoveryv1.EndpointPort) {
	obj.Name = cmp.Or(obj.Name, new(""))
	obj.Protocol = cmp.Or(obj.Protocol, new(corev1.ProtocolTCP))
}

// prepareSlice increments the generation if anything but metadata changes, or the labels, which
// name the Service. It drops the topology of v1beta1.
func prepareSlice(_ context.Context, s, old *discoveryv1.EndpointSlice) {
	if old == nil {
		s.Generation = 1
		dropTopology(s)
		return
	}
	if !sameContent(s, old) || !equality.Semantic.DeepEqual(s.Labels, old.Labels) {
		s.Generation = old.Generation + 1
	}
	if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		dropTopology(s)
	}
}

func sameContent(s, old *discoveryv1.EndpointSlice) bool {
	a, b := *s, *old
	a.TypeMeta, b.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
	a.ObjectMeta, b.ObjectMeta = metav1.ObjectMeta{}, metav1.ObjectMeta{}
	return equality.Semantic.DeepEqual(a, b)
}

func dropTopology(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

// Controllers with these values of the managed-by label write canonical addresses, so that validation
// need not check for others.
var trustedManagers = map[string]bool{
	"endpointslice-controller.k8s.io":          true,
	"endpointslicemirroring-controller.k8s.io": true,
}

func sliceWarnings(_ context.Context, s, old *discoveryv1.EndpointSlice) []string {
	var warnings []string
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		warnings = append(warnings, fmt.Sprintf("%s: FQDN endpoints are deprecated", field.NewPath("spec").Child("addressType")))
	}
	if s.AddressType == discoveryv1.AddressTypeFQDN || trustedManagers[s.Labels[discoveryv1.LabelManagedBy]] {
		return warnings
	}
	for i, endpoint := range s.Endpoints {
		path := field.NewPath("endpoints").Index(i).Child("addresses")
		for j, address := range endpoint.Addresses {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Index(j), address)...)
		}
	}
	return warnings
}

// shown is the number of ports or addresses that a cell shows.
const shown = 3

func formatPorts(ports []discoveryv1.EndpointPort) string {
	var all []string
	for _, p := range ports {
		switch {
		case p.Port != nil:
			all = append(all, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			all = append(all, *p.Name)
		default:
			all = append(all, "*")
		}
	}
	return someOf(all)
}

func formatEndpoints(endpoints []discoveryv1.Endpoint) string {
	var all []string
	for _, e := range endpoints {
		all = append(all, e.Addresses...)
	}
	return someOf(all)
}

func someOf(all []string) string {
	if len(all) > shown {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:shown], ","), len(all)-shown)
	}
	return cmp.Or(strings.Join(all, ","), "<unset>")
}
