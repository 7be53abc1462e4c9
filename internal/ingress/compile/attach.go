// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// anyRoute is a route of one of the kinds.
type anyRoute struct {
	kind      string
	meta      *metav1.ObjectMeta
	parents   []gatewayv1.ParentReference
	hostnames []gatewayv1.Hostname
	old       []gatewayv1.RouteParentStatus
	// rules are those of the model, without hosts.
	rules []route.Rule
	// accepted and resolved have the faults of the conditions.
	accepted, resolved fault
}

// routes compiles the routes by themselves.
func (c *gatewayCompiler) routes() []*anyRoute {
	var all []*anyRoute
	for _, r := range oldest(c.HTTPRoutes) {
		added := &anyRoute{kind: httpRoute, meta: &r.ObjectMeta, parents: r.Spec.ParentRefs, hostnames: r.Spec.Hostnames, old: r.Status.Parents}
		c.addHTTPRules(added, r.Spec.Rules)
		all = append(all, added)
	}
	for _, r := range oldest(c.GRPCRoutes) {
		added := &anyRoute{kind: grpcRoute, meta: &r.ObjectMeta, parents: r.Spec.ParentRefs, hostnames: r.Spec.Hostnames, old: r.Status.Parents}
		c.addGRPCRules(added, r.Spec.Rules)
		all = append(all, added)
	}
	for _, r := range oldest(c.TLSRoutes) {
		added := &anyRoute{kind: tlsRoute, meta: &r.ObjectMeta, parents: r.Spec.ParentRefs, hostnames: r.Spec.Hostnames, old: r.Status.Parents}
		c.addTLSRules(added, r.Spec.Rules)
		all = append(all, added)
	}
	return all
}

func (r *anyRoute) name() string { return r.kind + " " + r.meta.Namespace + "/" + r.meta.Name }

// attach attaches a route to the listeners of its parents, and returns its status. What other controllers have
// written is kept.
func (c *gatewayCompiler) attach(r *anyRoute) gatewayv1.RouteStatus {
	status := gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{}}
	for _, p := range r.old {
		if p.ControllerName != GatewayController {
			status.Parents = append(status.Parents, p)
		}
	}
	attached := map[*listener]bool{}
	for _, ref := range r.parents {
		g := c.parent(r, ref)
		if g == nil {
			continue
		}
		accepted := r.accepted
		if listeners, f := c.match(r, ref, g); f.reason != "" {
			accepted = f
		} else if accepted.reason == "" {
			for _, l := range listeners {
				if !attached[l] {
					l.add(r)
				}
				attached[l] = true
			}
		}
		status.Parents = append(status.Parents, gatewayv1.RouteParentStatus{
			ParentRef: ref, ControllerName: GatewayController,
			Conditions: c.conditions(r.conditionsOf(ref), r.meta.Generation,
				condition(gatewayv1.RouteConditionAccepted, accepted), condition(gatewayv1.RouteConditionResolvedRefs, r.resolved)),
		})
	}
	return status
}

func (r *anyRoute) conditionsOf(ref gatewayv1.ParentReference) []metav1.Condition {
	for _, p := range r.old {
		if p.ControllerName == GatewayController && equality.Semantic.DeepEqual(p.ParentRef, ref) {
			return p.Conditions
		}
	}
	return nil
}

// parent returns the Gateway that a reference names; nil if it is not Kindred's.
func (c *gatewayCompiler) parent(r *anyRoute, ref gatewayv1.ParentReference) *gateway {
	if ptr.Deref(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName || ptr.Deref(ref.Kind, "Gateway") != "Gateway" {
		return nil
	}
	return c.gateways[types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.meta.Namespace))), Name: string(ref.Name)}]
}

// match returns the listeners of a Gateway that serve a route, or why there are none.
func (c *gatewayCompiler) match(r *anyRoute, ref gatewayv1.ParentReference, g *gateway) ([]*listener, fault) {
	named := slices.DeleteFunc(slices.Clone(g.listeners), func(l *listener) bool {
		return ref.SectionName != nil && *ref.SectionName != l.spec.Name || ref.Port != nil && *ref.Port != l.spec.Port
	})
	if len(named) == 0 {
		return nil, fault{string(gatewayv1.RouteReasonNoMatchingParent), "the Gateway has no listener of this name and port"}
	}
	allowed := slices.DeleteFunc(named, func(l *listener) bool { return !l.attachable() || !c.allows(l, r) })
	if len(allowed) == 0 {
		return nil, fault{string(gatewayv1.RouteReasonNotAllowedByListeners), fmt.Sprintf("no valid listener allows the kind %s from the namespace %s", r.kind, r.meta.Namespace)}
	}
	hosting := slices.DeleteFunc(allowed, func(l *listener) bool { return len(l.hosts(r)) == 0 })
	if len(hosting) == 0 {
		return nil, fault{string(gatewayv1.RouteReasonNoMatchingListenerHostname), "no hostname of the route matches one of the listeners"}
	}
	return hosting, fault{}
}

// allows reports whether a listener allows routes of a kind and namespace.
func (c *gatewayCompiler) allows(l *listener, r *anyRoute) bool {
	if !slices.ContainsFunc(l.kinds, func(k gatewayv1.RouteGroupKind) bool { return string(k.Kind) == r.kind }) {
		return false
	}
	from, selector := gatewayv1.NamespacesFromSame, (*metav1.LabelSelector)(nil)
	if l.spec.AllowedRoutes != nil && l.spec.AllowedRoutes.Namespaces != nil {
		from, selector = ptr.Deref(l.spec.AllowedRoutes.Namespaces.From, from), l.spec.AllowedRoutes.Namespaces.Selector
	}
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return r.meta.Namespace == l.gateway.Namespace
	case gatewayv1.NamespacesFromSelector:
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && parsed.Matches(labels.Set(c.NamespaceLabels(r.meta.Namespace)))
	}
	return false
}

// hosts returns the hosts of a route at a listener: the intersections of their hostnames.
func (l *listener) hosts(r *anyRoute) []string {
	if len(r.hostnames) == 0 {
		return []string{l.hostname}
	}
	var hosts []string
	for _, h := range r.hostnames {
		if host, ok := intersection(l.hostname, strings.ToLower(string(h))); ok && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// intersection returns the hostname that matches what both of two hostnames match. A wildcard stands for one or more
// labels.
func intersection(a, b string) (string, bool) {
	switch {
	case a == "" || a == b:
		return b, true
	case b == "":
		return a, true
	case strings.HasPrefix(a, "*.") && strings.HasSuffix(b, a[1:]):
		return b, true
	case strings.HasPrefix(b, "*.") && strings.HasSuffix(a, b[1:]):
		return a, true
	}
	return "", false
}

func (l *listener) add(r *anyRoute) {
	l.attached++
	for _, host := range l.hosts(r) {
		for _, rule := range r.rules {
			rule.Host = host
			l.rules = append(l.rules, rule)
		}
	}
}

// granted reports whether an object may refer to another one: those of its namespace, and those for which a
// ReferenceGrant exists.
func (c *gatewayCompiler) granted(kind, from, toKind, to, name string) bool {
	if from == to {
		return true
	}
	group := gatewayv1.Group(gatewayv1.GroupName)
	return slices.ContainsFunc(c.Grants, func(g *gatewayv1.ReferenceGrant) bool {
		return g.Namespace == to &&
			slices.ContainsFunc(g.Spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
				return f.Group == group && string(f.Kind) == kind && string(f.Namespace) == from
			}) &&
			slices.ContainsFunc(g.Spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
				return t.Group == "" && string(t.Kind) == toKind && (t.Name == nil || string(*t.Name) == name)
			})
	})
}
