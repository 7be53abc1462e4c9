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
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core"
)

// Limits of a slice.
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

func validateSliceUpdate(_ context.Context, c *check.Checker, s, old *discoveryv1.EndpointSlice) {
	validateSlice(c, s, old)
	c.Declared().Immutable(field.NewPath("addressType"), s.AddressType, old.AddressType)
}

// validateSlice checks a slice. It does not check unchanged endpoints again, which an older version
// may have accepted; old is nil on create.
func validateSlice(c *check.Checker, s, old *discoveryv1.EndpointSlice) {
	validateAddressType(c, s.AddressType, field.NewPath("addressType"))
	validatePorts(c, s.Ports, field.NewPath("ports"))
	if old == nil || !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		validateEndpoints(c, s, field.NewPath("endpoints"))
	}
}

func validateAddressType(c *check.Checker, kind discoveryv1.AddressType, path *field.Path) {
	check.RequiredOneOf(c.Declared(), path, kind, addressTypes...)
}

func validatePorts(c *check.Checker, ports []discoveryv1.EndpointPort, path *field.Path) {
	if len(ports) > maxPorts {
		c.TooMany(path, len(ports), maxPorts)
		return
	}
	names := sets.New[string]()
	for i, p := range ports {
		item := path.Index(i)
		name := ptr.Deref(p.Name, "")
		if name != "" {
			c.DNSLabel(item.Child("name"), name)
		}
		if names.Has(name) {
			c.Duplicate(item.Child("name"), p.Name)
		}
		names.Insert(name)
		if p.Protocol == nil {
			c.Required(item.Child("protocol"), "")
		}
		check.OptionalOneOf(c, item.Child("protocol"), p.Protocol, protocols...)
		if p.AppProtocol != nil {
			c.QualifiedName(item.Child("appProtocol"), *p.AppProtocol)
		}
	}
}

func validateEndpoints(c *check.Checker, s *discoveryv1.EndpointSlice, path *field.Path) {
	if len(s.Endpoints) > maxEndpoints {
		c.TooMany(path, len(s.Endpoints), maxEndpoints)
		return
	}
	for i := range s.Endpoints {
		e, item := &s.Endpoints[i], path.Index(i)
		validateAddresses(c, e.Addresses, s.AddressType, item.Child("addresses"))
		c.OptionalDNSSubdomain(item.Child("nodeName"), e.NodeName)
		topology := item.Child("deprecatedTopology")
		c.MaxItems(topology, len(e.DeprecatedTopology), maxTopologyLabels)
		c.Labels(topology, e.DeprecatedTopology)
		if e.Hostname != nil {
			c.DNSLabel(item.Child("hostname"), *e.Hostname)
		}
		if e.Hints != nil {
			validateHints(c, e.Hints, item.Child("hints"))
		}
	}
}

func validateAddresses(c *check.Checker, addresses []string, kind discoveryv1.AddressType, path *field.Path) {
	switch n := len(addresses); {
	case n == 0:
		c.Declared().Required(path, "must contain at least 1 address")
	case n > maxAddresses:
		c.Declared().Add(field.TooMany(path, n, maxAddresses).WithOrigin("maxItems"))
	}
	for i, address := range addresses {
		validateAddress(c, address, kind, path, path.Index(i))
	}
}

// validateAddress checks an address by its type. It accepts any address of an unknown type.
func validateAddress(c *check.Checker, address string, kind discoveryv1.AddressType, list, path *field.Path) {
	var isFamily, valid bool
	switch kind {
	case discoveryv1.AddressTypeFQDN:
		c.Add(utilvalidation.IsFullyQualifiedDomainName(path, address)...)
		return
	case discoveryv1.AddressTypeIPv4:
		valid = c.Passes(func() { c.IP(path, address, nil) })
		isFamily = netutils.IsIPv4String(address)
	case discoveryv1.AddressTypeIPv6:
		valid = c.Passes(func() { c.Add(utilvalidation.IsValidIP(path, address)...) })
		isFamily = netutils.IsIPv6String(address)
	default:
		return
	}
	if !valid {
		return
	}
	if !isFamily {
		c.Invalid(list, address, "must be an "+string(kind)+" address")
	}
	core.ValidateEndpointIP(c, address, path)
}

func validateHints(c *check.Checker, hints *discoveryv1.EndpointHints, path *field.Path) {
	var zones, nodes []string
	for _, zone := range hints.ForZones {
		zones = append(zones, zone.Name)
	}
	for _, node := range hints.ForNodes {
		nodes = append(nodes, node.Name)
	}
	if len(zones) > maxHints {
		c.TooMany(path.Child("forZones"), len(zones), maxHints)
		return
	}
	validateHintNames(c, zones, path.Child("forZones"), utilvalidation.IsValidLabelValue)
	if len(nodes) > maxHints {
		c.TooMany(path.Child("forNodes"), len(nodes), maxHints)
		return
	}
	validateHintNames(c, nodes, path.Child("forNodes"), func(name string) []string {
		return apivalidation.NameIsDNSSubdomain(name, false)
	})
}

func validateHintNames(c *check.Checker, names []string, path *field.Path, check func(string) []string) {
	for i, name := range names {
		item := path.Index(i).Child("name")
		if slices.Contains(names[:i], name) {
			c.Duplicate(item, name)
		}
		c.Invalid(item, name, check(name)...)
	}
}
