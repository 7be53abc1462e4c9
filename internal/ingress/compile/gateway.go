// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// GatewayController is the name in GatewayClasses whose Gateways Kindred serves.
const GatewayController = "kindred.dev/gateway"

// Kinds of routes.
const (
	httpRoute = "HTTPRoute"
	grpcRoute = "GRPCRoute"
	tlsRoute  = "TLSRoute"
)

// GatewayObjects are the objects of the Gateway API, and what they refer to.
type GatewayObjects struct {
	Objects
	Classes    []*gatewayv1.GatewayClass
	Gateways   []*gatewayv1.Gateway
	HTTPRoutes []*gatewayv1.HTTPRoute
	GRPCRoutes []*gatewayv1.GRPCRoute
	TLSRoutes  []*gatewayv1.TLSRoute
	Grants     []*gatewayv1.ReferenceGrant
	// NamespaceLabels returns the labels of a namespace.
	NamespaceLabels func(name string) map[string]string
	// Place returns where a Gateway is served.
	Place func(*gatewayv1.Gateway) Place
	// Failed has the ports that could not be opened, with the reason.
	Failed map[uint16]string
	// Ingress are the ports of Ingresses, which Gateways may share.
	Ingress Ports
	// Now is the time of transitions of conditions.
	Now metav1.Time
}

// Place describes where a Gateway is served.
type Place struct {
	// Addresses are those where clients reach the Gateway.
	Addresses []netip.Addr
	// Own is set if the addresses are only this Gateway's. Otherwise they are those of the machine.
	Own bool
	// Unsupported, Reason and Message describe why an address is missing. If Unsupported is set, the Gateway is not
	// accepted, else not programmed.
	Unsupported     bool
	Reason, Message string
}

// RouteKey names a route.
type RouteKey struct {
	Kind string
	types.NamespacedName
}

// Gateways is the result of compiling the objects of the Gateway API.
type Gateways struct {
	Listeners []route.Listener
	// Classes, Statuses and Routes have the statuses of the GatewayClasses and Gateways that are Kindred's, and of all
	// routes.
	Classes  map[string]gatewayv1.GatewayClassStatus
	Statuses map[types.NamespacedName]gatewayv1.GatewayStatus
	Routes   map[RouteKey]gatewayv1.RouteStatus
}

// CompileGateways compiles Gateways and their routes to listeners, and returns the statuses of all of them. Older
// objects take precedence over newer ones.
func CompileGateways(objects GatewayObjects) Gateways {
	c := gatewayCompiler{
		GatewayObjects: objects, gateways: map[types.NamespacedName]*gateway{}, claims: map[claim]*gateway{},
		encrypted: map[uint16]bool{objects.Ingress.HTTP: false, objects.Ingress.HTTPS: true},
	}
	result := Gateways{
		Classes: map[string]gatewayv1.GatewayClassStatus{}, Statuses: map[types.NamespacedName]gatewayv1.GatewayStatus{},
		Routes: map[RouteKey]gatewayv1.RouteStatus{},
	}
	served := map[gatewayv1.ObjectName]bool{}
	for _, class := range objects.Classes {
		if class.Spec.ControllerName == GatewayController {
			status := c.classStatus(class)
			served[gatewayv1.ObjectName(class.Name)] = class.Spec.ParametersRef == nil
			result.Classes[class.Name] = status
		}
	}
	for _, g := range oldest(objects.Gateways) {
		if served[g.Spec.GatewayClassName] {
			c.addGateway(g)
		}
	}
	for _, r := range c.routes() {
		result.Routes[RouteKey{r.kind, types.NamespacedName{Namespace: r.meta.Namespace, Name: r.meta.Name}}] = c.attach(r)
	}
	for _, g := range c.ordered {
		result.Statuses[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = c.gatewayStatus(g)
		for _, l := range g.listeners {
			result.Listeners = append(result.Listeners, l.served()...)
		}
	}
	return result
}

// OwnGateways returns the Gateways of Kindred's classes.
func OwnGateways(all []*gatewayv1.Gateway, classes []*gatewayv1.GatewayClass) []*gatewayv1.Gateway {
	served := map[gatewayv1.ObjectName]bool{}
	for _, class := range classes {
		served[gatewayv1.ObjectName(class.Name)] = class.Spec.ControllerName == GatewayController && class.Spec.ParametersRef == nil
	}
	return slices.DeleteFunc(oldest(all), func(g *gatewayv1.Gateway) bool { return !served[g.Spec.GatewayClassName] })
}

// oldest returns objects that are not being deleted, in the order of their age, and then of their names.
func oldest[T metav1.Object](all []T) []T {
	kept := slices.DeleteFunc(slices.Clone(all), func(o T) bool { return o.GetDeletionTimestamp() != nil })
	slices.SortFunc(kept, func(a, b T) int {
		created := a.GetCreationTimestamp()
		return cmp.Or(created.Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return kept
}

type gatewayCompiler struct {
	GatewayObjects
	gateways map[types.NamespacedName]*gateway
	ordered  []*gateway
	// claims has the Gateways that are served at the addresses of the machine, and encrypted the ports that are
	// served: one socket for all addresses expects TLS or not.
	claims    map[claim]*gateway
	encrypted map[uint16]bool
}

// claim is what only one listener has at the addresses of the machine.
type claim struct {
	port     uint16
	hostname string
}

type gateway struct {
	*gatewayv1.Gateway
	place     Place
	listeners []*listener
}

// fault is the reason of a condition that is not fulfilled. The zero value is none.
type fault struct{ reason, message string }

type listener struct {
	gateway  *gateway
	spec     *gatewayv1.Listener
	protocol route.Protocol
	hostname string
	kinds    []gatewayv1.RouteGroupKind
	// accepted, resolved, conflicted and programmed have the faults of the conditions.
	accepted, resolved, conflicted, programmed fault
	certificates                               []route.Certificate
	attached                                   int32
	rules                                      []route.Rule
}

func (c *gatewayCompiler) addGateway(g *gatewayv1.Gateway) {
	added := &gateway{Gateway: g, place: c.Place(g)}
	for i := range g.Spec.Listeners {
		l := &listener{gateway: added, spec: &g.Spec.Listeners[i], hostname: strings.ToLower(string(ptr.Deref(g.Spec.Listeners[i].Hostname, "")))}
		c.prepare(l)
		added.listeners = append(added.listeners, l)
	}
	for _, l := range added.listeners {
		l.conflict(added.listeners)
	}
	if !added.refused() {
		for _, l := range added.listeners {
			c.claim(l)
		}
	}
	c.ordered = append(c.ordered, added)
	c.gateways[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = added
}

// refused reports whether a Gateway is not accepted, whatever its listeners are.
func (g *gateway) refused() bool { return g.place.Unsupported || g.parameters() }

func (g *gateway) parameters() bool {
	return g.Spec.Infrastructure != nil && g.Spec.Infrastructure.ParametersRef != nil
}

// prepare decides what a listener is, by itself.
func (c *gatewayCompiler) prepare(l *listener) {
	mode := gatewayv1.TLSModeTerminate
	if l.spec.TLS != nil {
		mode = ptr.Deref(l.spec.TLS.Mode, mode)
	}
	possible := []string{httpRoute, grpcRoute}
	switch {
	case l.spec.Protocol == gatewayv1.HTTPProtocolType:
		l.protocol = route.HTTP
	case l.spec.Protocol == gatewayv1.HTTPSProtocolType && mode == gatewayv1.TLSModeTerminate:
		l.protocol = route.HTTPS
		c.addGatewayCertificates(l)
	case l.spec.Protocol == gatewayv1.TLSProtocolType && mode == gatewayv1.TLSModePassthrough:
		l.protocol, possible = route.Passthrough, []string{tlsRoute}
	case l.spec.Protocol == gatewayv1.TLSProtocolType || l.spec.Protocol == gatewayv1.HTTPSProtocolType:
		l.accepted = fault{string(gatewayv1.ListenerReasonUnsupportedValue), fmt.Sprintf("the protocol %s with the TLS mode %s is not supported", l.spec.Protocol, mode)}
	default:
		l.accepted = fault{string(gatewayv1.ListenerReasonUnsupportedProtocol), fmt.Sprintf("the protocol %s is not supported; HTTP, HTTPS and TLS are", l.spec.Protocol)}
	}
	if l.spec.Protocol == gatewayv1.HTTPSProtocolType && c.validatesClients(l.gateway, l.spec.Port) {
		l.accepted = fault{string(gatewayv1.ListenerReasonUnsupportedValue), "the validation of clients' certificates is not supported"}
	}
	l.chooseKinds(possible)
}

// validatesClients reports whether a Gateway asks for the validation of clients' certificates on a port. That is not
// supported, and to serve the port without it would let everyone in.
func (c *gatewayCompiler) validatesClients(g *gateway, port gatewayv1.PortNumber) bool {
	if g.Spec.TLS == nil || g.Spec.TLS.Frontend == nil {
		return false
	}
	for _, p := range g.Spec.TLS.Frontend.PerPort {
		if p.Port == port {
			return p.TLS.Validation != nil
		}
	}
	return g.Spec.TLS.Frontend.Default.Validation != nil
}

// chooseKinds sets the kinds of routes that a listener serves: those that are possible and that it allows.
func (l *listener) chooseKinds(possible []string) {
	l.kinds = []gatewayv1.RouteGroupKind{}
	if l.accepted.reason != "" {
		return
	}
	if l.spec.AllowedRoutes == nil || len(l.spec.AllowedRoutes.Kinds) == 0 {
		for _, kind := range possible {
			l.kinds = append(l.kinds, routeKind(kind))
		}
		return
	}
	for _, k := range l.spec.AllowedRoutes.Kinds {
		if ptr.Deref(k.Group, gatewayv1.GroupName) != gatewayv1.GroupName || !slices.Contains(possible, string(k.Kind)) {
			l.resolved = fault{string(gatewayv1.ListenerReasonInvalidRouteKinds), fmt.Sprintf("the kind %s is not served by listeners of the protocol %s", k.Kind, l.spec.Protocol)}
			continue
		}
		l.kinds = append(l.kinds, routeKind(string(k.Kind)))
	}
}

func routeKind(kind string) gatewayv1.RouteGroupKind {
	return gatewayv1.RouteGroupKind{Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: gatewayv1.Kind(kind)}
}

func (c *gatewayCompiler) addGatewayCertificates(l *listener) {
	if l.spec.TLS == nil || len(l.spec.TLS.CertificateRefs) == 0 {
		l.resolved = fault{string(gatewayv1.ListenerReasonInvalidCertificateRef), "the listener has no certificate"}
		return
	}
	for _, ref := range l.spec.TLS.CertificateRefs {
		namespace := string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(l.gateway.Namespace)))
		if ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Secret") != "Secret" {
			l.resolved = fault{string(gatewayv1.ListenerReasonInvalidCertificateRef), fmt.Sprintf("the certificate %s is no Secret", ref.Name)}
			continue
		}
		if !c.granted("Gateway", l.gateway.Namespace, "Secret", namespace, string(ref.Name)) {
			l.resolved = fault{string(gatewayv1.ListenerReasonRefNotPermitted), fmt.Sprintf("no ReferenceGrant allows the Secret %s/%s", namespace, ref.Name)}
			continue
		}
		certificate, err := c.certificate(namespace, string(ref.Name))
		if err != nil {
			l.resolved = fault{string(gatewayv1.ListenerReasonInvalidCertificateRef), err.Error()}
			continue
		}
		l.certificates = append(l.certificates, route.Certificate{Host: l.hostname, Certificate: certificate})
	}
}

// conflict compares a listener with the others of its Gateway.
func (l *listener) conflict(all []*listener) {
	for _, other := range all {
		if other == l || other.spec.Port != l.spec.Port || other.accepted.reason != "" || l.accepted.reason != "" {
			continue
		}
		switch {
		case (other.protocol == route.HTTP) != (l.protocol == route.HTTP), other.hostname == l.hostname && other.protocol != l.protocol:
			l.conflicted = fault{string(gatewayv1.ListenerReasonProtocolConflict), fmt.Sprintf("the listener %s has the same port and the protocol %s", other.spec.Name, other.spec.Protocol)}
		case other.hostname == l.hostname:
			l.conflicted = fault{string(gatewayv1.ListenerReasonHostnameConflict), fmt.Sprintf("the listener %s has the same port and hostname", other.spec.Name)}
		}
	}
}

// claim takes the port of a listener, and at addresses that Gateways share also its hostname there.
func (c *gatewayCompiler) claim(l *listener) {
	if l.accepted.reason != "" || l.conflicted.reason != "" {
		return
	}
	port := uint16(l.spec.Port)
	if encrypted, ok := c.encrypted[port]; ok && encrypted != (l.protocol != route.HTTP) {
		l.accepted = fault{string(gatewayv1.ListenerReasonPortUnavailable), fmt.Sprintf("port %d is served with another protocol, for Ingresses or an older Gateway: a port is served with TLS on all addresses, or on none", port)}
		return
	}
	if reason, failed := c.Failed[port]; failed {
		l.programmed = fault{string(gatewayv1.ListenerReasonPending), fmt.Sprintf("port %d is not served: %s", port, reason)}
	}
	if !l.gateway.place.Own && !c.share(l, port) {
		return
	}
	c.encrypted[port] = l.protocol != route.HTTP
}

// share takes a port and hostname at the addresses of the machine.
func (c *gatewayCompiler) share(l *listener, port uint16) bool {
	if l.protocol == route.Passthrough && l.hostname == "" && port == c.Ingress.HTTPS {
		l.accepted = fault{string(gatewayv1.ListenerReasonPortUnavailable), fmt.Sprintf("port %d is that of Ingresses with TLS; give the listener a hostname", port)}
		return false
	}
	key := claim{port, l.hostname}
	if by, taken := c.claims[key]; taken && by != l.gateway {
		l.conflicted = fault{string(gatewayv1.ListenerReasonHostnameConflict), fmt.Sprintf("the older Gateway %s/%s has this port and hostname at the same addresses", by.Namespace, by.Name)}
		return false
	}
	c.claims[key] = l.gateway
	return true
}

// attachable reports whether routes can be attached to a listener.
func (l *listener) attachable() bool {
	return !l.gateway.refused() && l.accepted.reason == "" && l.conflicted.reason == ""
}

// served returns the listeners of the model.
func (l *listener) served() []route.Listener {
	if !l.attachable() || l.protocol == route.HTTPS && len(l.certificates) == 0 {
		return nil
	}
	addresses := l.gateway.place.Addresses
	if !l.gateway.place.Own && len(addresses) > 0 {
		addresses = []netip.Addr{{}}
	}
	var all []route.Listener
	for _, a := range addresses {
		all = append(all, route.Listener{
			Address: a, Port: uint16(l.spec.Port), Protocol: l.protocol, Hostname: l.hostname,
			Certificates: l.certificates, Rules: slices.Clone(l.rules),
		})
	}
	return all
}
