// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// SupportedFeatures are the names of the features of the Gateway API that are served, as in
// sigs.k8s.io/gateway-api/pkg/features, sorted.
var SupportedFeatures = []gatewayv1.FeatureName{
	"GRPCRoute", "GRPCRouteNamedRouteRule",
	"Gateway", "GatewayAddressEmpty", "GatewayHTTPListenerIsolation", "GatewayHTTPSListenerDetectMisdirectedRequests", "GatewayPort8080", "GatewayStaticAddresses",
	"HTTPRoute", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
	"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification", "HTTPRouteBackendTimeout",
	"HTTPRouteDestinationPortMatching", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching", "HTTPRouteNamedRouteRule", "HTTPRouteParentRefPort",
	"HTTPRoutePathRedirect", "HTTPRoutePathRewrite", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestMirror",
	"HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", "HTTPRouteRequestTimeout", "HTTPRouteResponseHeaderModification",
	"HTTPRouteSchemeRedirect",
	"ReferenceGrant",
	"TLSRoute",
}

// wanted is a condition that a status is to have.
type wanted struct {
	kind   string
	status bool
	reason string
	// message is for users; conditions that are fulfilled need none.
	message string
}

// condition returns a condition that is true with a reason of the same name as the kind, unless there is a fault.
func condition[K ~string](kind K, f fault) wanted {
	if f.reason != "" {
		return wanted{string(kind), false, f.reason, f.message}
	}
	return wanted{string(kind), true, string(kind), ""}
}

// conditions returns conditions after a change. Those of other kinds are kept, and the time of a transition is kept
// if the status is the same.
func (c *gatewayCompiler) conditions(old []metav1.Condition, generation int64, want ...wanted) []metav1.Condition {
	now := slices.Clone(old)
	for _, w := range want {
		status := metav1.ConditionFalse
		if w.status {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&now, metav1.Condition{
			Type: w.kind, Status: status, Reason: w.reason, Message: w.message, ObservedGeneration: generation, LastTransitionTime: c.Now,
		})
	}
	return now
}

func (c *gatewayCompiler) classStatus(class *gatewayv1.GatewayClass) gatewayv1.GatewayClassStatus {
	var f fault
	if class.Spec.ParametersRef != nil {
		f = fault{string(gatewayv1.GatewayClassReasonInvalidParameters), "parameters are not supported"}
	}
	status := gatewayv1.GatewayClassStatus{Conditions: c.conditions(class.Status.Conditions, class.Generation, condition(gatewayv1.GatewayClassConditionStatusAccepted, f))}
	for _, name := range SupportedFeatures {
		status.SupportedFeatures = append(status.SupportedFeatures, gatewayv1.SupportedFeature{Name: name})
	}
	slices.SortFunc(status.SupportedFeatures, func(a, b gatewayv1.SupportedFeature) int { return cmp.Compare(a.Name, b.Name) })
	return status
}

func (c *gatewayCompiler) gatewayStatus(g *gateway) gatewayv1.GatewayStatus {
	status := gatewayv1.GatewayStatus{Listeners: []gatewayv1.ListenerStatus{}, AttachedListenerSets: g.Status.AttachedListenerSets}
	valid, programmed := 0, 0
	for _, l := range g.listeners {
		if l.attachable() {
			valid++
		}
		if len(l.served()) > 0 && l.programmed.reason == "" {
			programmed++
		}
		status.Listeners = append(status.Listeners, c.listenerStatus(l))
	}
	if !g.place.Unsupported {
		for _, a := range g.place.Addresses {
			status.Addresses = append(status.Addresses, gatewayv1.GatewayStatusAddress{Type: ptr.To(gatewayv1.IPAddressType), Value: a.String()})
		}
	}
	accepted := g.accepted(valid)
	status.Conditions = c.conditions(g.Status.Conditions, g.Generation, accepted, g.programmed(accepted, programmed))
	return status
}

func (g *gateway) accepted(valid int) wanted {
	kind := string(gatewayv1.GatewayConditionAccepted)
	switch {
	case g.place.Unsupported:
		return wanted{kind, false, g.place.Reason, g.place.Message}
	case g.parameters():
		return wanted{kind, false, string(gatewayv1.GatewayReasonInvalidParameters), "spec.infrastructure.parametersRef is not supported"}
	case valid == 0:
		return wanted{kind, false, string(gatewayv1.GatewayReasonListenersNotValid), "no listener is accepted; their conditions have the reasons"}
	case valid < len(g.listeners):
		return wanted{kind, true, string(gatewayv1.GatewayReasonListenersNotValid), "some listeners are not accepted; their conditions have the reasons"}
	}
	return wanted{kind, true, string(gatewayv1.GatewayReasonAccepted), ""}
}

func (g *gateway) programmed(accepted wanted, programmed int) wanted {
	kind := string(gatewayv1.GatewayConditionProgrammed)
	switch {
	case !accepted.status:
		return wanted{kind, false, string(gatewayv1.GatewayReasonInvalid), "the Gateway is not accepted"}
	case g.place.Reason != "":
		return wanted{kind, false, g.place.Reason, g.place.Message}
	case programmed == 0:
		return wanted{kind, false, string(gatewayv1.GatewayReasonInvalid), "no listener is served; their conditions have the reasons"}
	}
	return wanted{kind, true, string(gatewayv1.GatewayReasonProgrammed), ""}
}

func (c *gatewayCompiler) listenerStatus(l *listener) gatewayv1.ListenerStatus {
	var old []metav1.Condition
	for _, s := range l.gateway.Status.Listeners {
		if s.Name == l.spec.Name {
			old = s.Conditions
		}
	}
	conflicted := wanted{string(gatewayv1.ListenerConditionConflicted), false, string(gatewayv1.ListenerReasonNoConflicts), ""}
	accepted := l.accepted
	if l.conflicted.reason != "" {
		conflicted = wanted{conflicted.kind, true, l.conflicted.reason, l.conflicted.message}
		accepted = l.conflicted
	}
	programmed := l.programmed
	switch {
	case !l.attachable(), l.protocol == route.HTTPS && len(l.certificates) == 0:
		programmed = fault{string(gatewayv1.ListenerReasonInvalid), "the listener is not valid"}
	case len(l.served()) == 0 && programmed.reason == "":
		programmed = fault{string(gatewayv1.ListenerReasonPending), cmp.Or(l.gateway.place.Message, "the Gateway has no address")}
	}
	return gatewayv1.ListenerStatus{
		Name: l.spec.Name, SupportedKinds: l.kinds, AttachedRoutes: l.attached,
		Conditions: c.conditions(old, l.gateway.Generation,
			condition(gatewayv1.ListenerConditionAccepted, accepted), condition(gatewayv1.ListenerConditionProgrammed, programmed),
			condition(gatewayv1.ListenerConditionResolvedRefs, l.resolved), conflicted),
	}
}
