// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/core"
)

// How much a slice may hold.
const (
	maxEndpoints      = 1000
	maxAddresses      = 100
	maxPorts          = 20000
	maxTopologyLabels = 16
	maxHints          = 8
)

var (
	addressTypes = []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	protocols    = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}
)

func validateSliceUpdate(_ context.Context, s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := validateSlice(s, old)
	return append(errs, apivalidation.ValidateImmutableField(s.AddressType, old.AddressType, field.NewPath("addressType")).WithOrigin("immutable").MarkCoveredByDeclarative()...)
}

// validateSlice checks all but the metadata. Endpoints that old, nil on create,
// had already may stay as an older version let them be.
func validateSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := validateAddressType(s.AddressType, field.NewPath("addressType"))
	errs = append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
	problems := validateEndpoints(s, field.NewPath("endpoints"))
	if len(problems) > 0 && old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return errs
	}
	return append(errs, problems...)
}

func validateAddressType(kind discoveryv1.AddressType, path *field.Path) field.ErrorList {
	switch {
	case kind == "":
		return field.ErrorList{field.Required(path, "").MarkCoveredByDeclarative()}
	case !slices.Contains(addressTypes, kind):
		return field.ErrorList{field.NotSupported(path, kind, addressTypes).MarkCoveredByDeclarative()}
	}
	return nil
}

func validatePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxPorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxPorts)}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range ports {
		item := path.Index(i)
		name := ptr.Deref(p.Name, "")
		if name != "" {
			errs = append(errs, invalid(item.Child("name"), name, utilvalidation.IsDNS1123Label(name))...)
		}
		if names.Has(name) {
			errs = append(errs, field.Duplicate(item.Child("name"), p.Name))
		}
		names.Insert(name)
		switch {
		case p.Protocol == nil:
			errs = append(errs, field.Required(item.Child("protocol"), ""))
		case !slices.Contains(protocols, *p.Protocol):
			errs = append(errs, field.NotSupported(item.Child("protocol"), *p.Protocol, protocols))
		}
		if p.AppProtocol != nil {
			errs = append(errs, invalid(item.Child("appProtocol"), *p.AppProtocol, utilvalidation.IsQualifiedName(*p.AppProtocol))...)
		}
	}
	return errs
}

func validateEndpoints(s *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	if len(s.Endpoints) > maxEndpoints {
		return field.ErrorList{field.TooMany(path, len(s.Endpoints), maxEndpoints)}
	}
	var errs field.ErrorList
	for i := range s.Endpoints {
		e, item := &s.Endpoints[i], path.Index(i)
		errs = append(errs, validateAddresses(e.Addresses, s.AddressType, item.Child("addresses"))...)
		if e.NodeName != nil {
			errs = append(errs, invalid(item.Child("nodeName"), *e.NodeName, apivalidation.NameIsDNSSubdomain(*e.NodeName, false))...)
		}
		topology := item.Child("deprecatedTopology")
		if len(e.DeprecatedTopology) > maxTopologyLabels {
			errs = append(errs, field.TooMany(topology, len(e.DeprecatedTopology), maxTopologyLabels))
		}
		errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, topology)...)
		if e.Hostname != nil {
			errs = append(errs, invalid(item.Child("hostname"), *e.Hostname, utilvalidation.IsDNS1123Label(*e.Hostname))...)
		}
		if e.Hints != nil {
			errs = append(errs, validateHints(e.Hints, item.Child("hints"))...)
		}
	}
	return errs
}

func validateAddresses(addresses []string, kind discoveryv1.AddressType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch n := len(addresses); {
	case n == 0:
		errs = append(errs, field.Required(path, "must contain at least 1 address").MarkCoveredByDeclarative())
	case n > maxAddresses:
		errs = append(errs, field.TooMany(path, n, maxAddresses).WithOrigin("maxItems").MarkCoveredByDeclarative())
	}
	for i, address := range addresses {
		errs = append(errs, validateAddress(address, kind, path, path.Index(i))...)
	}
	return errs
}

// validateAddress checks an address by its type; nothing is known of unknown ones.
func validateAddress(address string, kind discoveryv1.AddressType, list, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var right bool
	switch kind {
	case discoveryv1.AddressTypeFQDN:
		return utilvalidation.IsFullyQualifiedDomainName(path, address)
	case discoveryv1.AddressTypeIPv4:
		errs = utilvalidation.IsValidIPForLegacyField(path, address, true, nil)
		right = netutils.IsIPv4String(address)
	case discoveryv1.AddressTypeIPv6:
		errs = utilvalidation.IsValidIP(path, address)
		right = netutils.IsIPv6String(address)
	default:
		return nil
	}
	if len(errs) > 0 {
		return errs
	}
	if !right {
		errs = append(errs, field.Invalid(list, address, "must be an "+string(kind)+" address"))
	}
	return append(errs, core.ValidateEndpointIP(address, path)...)
}

func validateHints(hints *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	var zones, nodes []string
	for _, zone := range hints.ForZones {
		zones = append(zones, zone.Name)
	}
	for _, node := range hints.ForNodes {
		nodes = append(nodes, node.Name)
	}
	if len(zones) > maxHints {
		return field.ErrorList{field.TooMany(path.Child("forZones"), len(zones), maxHints)}
	}
	errs := validateHintNames(zones, path.Child("forZones"), utilvalidation.IsValidLabelValue)
	if len(nodes) > maxHints {
		return append(errs, field.TooMany(path.Child("forNodes"), len(nodes), maxHints))
	}
	return append(errs, validateHintNames(nodes, path.Child("forNodes"), func(name string) []string {
		return apivalidation.NameIsDNSSubdomain(name, false)
	})...)
}

func validateHintNames(names []string, path *field.Path, check func(string) []string) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		item := path.Index(i).Child("name")
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(item, name))
		}
		errs = append(errs, invalid(item, name, check(name))...)
	}
	return errs
}

func invalid(path *field.Path, value any, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(path, value, problem))
	}
	return errs
}
