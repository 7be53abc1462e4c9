// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"net"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// strict refuses addresses that are written ambiguously (leading zeros).
const strict = true

// NetworkPolicy limits the ingress and egress traffic of pods.
var NetworkPolicy = generic.Kind[*networkingv1.NetworkPolicy]{
	Name: "NetworkPolicy", Plural: "networkpolicies", ShortNames: []string{"netpol"},
	New:     func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
	NewList: func() runtime.Object { return &networkingv1.NetworkPolicyList{} },
	Spec:    func(p *networkingv1.NetworkPolicy) any { return &p.Spec },
	Validate: func(_ context.Context, p *networkingv1.NetworkPolicy) field.ErrorList {
		return policyRules{}.spec(&p.Spec, field.NewPath("spec"))
	},
	ValidateUpdate: validateNetworkPolicyUpdate,
	Warnings:       networkPolicyWarnings,
	Columns: []generic.Column[*networkingv1.NetworkPolicy]{{
		Name: "Pod-Selector", Description: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"],
		Cell: func(p *networkingv1.NetworkPolicy) any { return metav1.FormatLabelSelector(&p.Spec.PodSelector) },
	}},
}

// SetDefaults_NetworkPolicy defaults policyTypes to Ingress, and Egress if there are egress rules.
func SetDefaults_NetworkPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) > 0 {
		return
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

// SetDefaults_NetworkPolicyPort defaults the protocol to TCP.
func SetDefaults_NetworkPolicyPort(p *networkingv1.NetworkPolicyPort) {
	if p.Protocol == nil {
		p.Protocol = new(corev1.ProtocolTCP)
	}
}

// policyRules are the rules of a NetworkPolicy's spec. An update may keep what an
// older server has let in.
type policyRules struct {
	knownCIDRs []string
	selectors  metav1validation.LabelSelectorValidationOptions
}

func validateNetworkPolicyUpdate(_ context.Context, p, old *networkingv1.NetworkPolicy) field.ErrorList {
	var rules policyRules
	eachBlock(&old.Spec, func(block *networkingv1.IPBlock, _ *field.Path) {
		rules.knownCIDRs = append(append(rules.knownCIDRs, block.CIDR), block.Except...)
	})
	rules.selectors.AllowInvalidLabelValueInSelector = len(metav1validation.ValidateLabelSelector(&old.Spec.PodSelector, rules.selectors, nil)) > 0
	return rules.spec(&p.Spec, field.NewPath("spec"))
}

// eachBlock visits the address ranges of all rules.
func eachBlock(spec *networkingv1.NetworkPolicySpec, visit func(*networkingv1.IPBlock, *field.Path)) {
	peers := func(peers []networkingv1.NetworkPolicyPeer, path *field.Path) {
		for i := range peers {
			if block := peers[i].IPBlock; block != nil {
				visit(block, path.Index(i).Child("ipBlock"))
			}
		}
	}
	path := field.NewPath("spec")
	for i := range spec.Ingress {
		peers(spec.Ingress[i].From, path.Child("ingress").Index(i).Child("from"))
	}
	for i := range spec.Egress {
		peers(spec.Egress[i].To, path.Child("egress").Index(i).Child("to"))
	}
}

func networkPolicyWarnings(_ context.Context, p, _ *networkingv1.NetworkPolicy) []string {
	var out []string
	eachBlock(&p.Spec, func(block *networkingv1.IPBlock, path *field.Path) {
		out = append(out, utilvalidation.GetWarningsForCIDR(path.Child("cidr"), block.CIDR)...)
		for i, except := range block.Except {
			out = append(out, utilvalidation.GetWarningsForCIDR(path.Child("except").Index(i), except)...)
		}
	})
	return out
}

func (r policyRules) spec(spec *networkingv1.NetworkPolicySpec, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(&spec.PodSelector, r.selectors, path.Child("podSelector"))
	for i, rule := range spec.Ingress {
		at := path.Child("ingress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, at.Child("ports"))...)
		errs = append(errs, r.peers(rule.From, at.Child("from"))...)
	}
	for i, rule := range spec.Egress {
		at := path.Child("egress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, at.Child("ports"))...)
		errs = append(errs, r.peers(rule.To, at.Child("to"))...)
	}
	return append(errs, validatePolicyTypes(spec.PolicyTypes, path.Child("policyTypes"))...)
}

func validatePolicyTypes(types []networkingv1.PolicyType, path *field.Path) field.ErrorList {
	if len(types) > 2 {
		return field.ErrorList{field.Invalid(path, &types, "may not specify more than two policyTypes")}
	}
	var errs field.ErrorList
	for i, t := range types {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			errs = append(errs, field.NotSupported(path.Index(i), t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}))
		}
	}
	return errs
}

func validatePolicyPorts(ports []networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range ports {
		errs = append(errs, validatePolicyPort(&ports[i], path.Index(i))...)
	}
	return errs
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Protocol != nil {
		switch *p.Protocol {
		case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		default:
			errs = append(errs, field.NotSupported(path.Child("protocol"), *p.Protocol, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}))
		}
	}
	port, end := path.Child("port"), path.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		}
	case p.Port.Type == intstr.Int:
		errs = append(errs, generic.Invalid(port, p.Port.IntVal, utilvalidation.IsValidPortNum(int(p.Port.IntVal)))...)
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
		}
		errs = append(errs, generic.Invalid(end, *p.EndPort, utilvalidation.IsValidPortNum(int(*p.EndPort)))...)
	default:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, generic.Invalid(port, p.Port.StrVal, utilvalidation.IsValidPortName(p.Port.StrVal))...)
	}
	return errs
}

func (r policyRules) peers(peers []networkingv1.NetworkPolicyPeer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range peers {
		errs = append(errs, r.peer(&peers[i], path.Index(i))...)
	}
	return errs
}

func (r policyRules) peer(peer *networkingv1.NetworkPolicyPeer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if peer.PodSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(peer.PodSelector, r.selectors, path.Child("podSelector"))...)
	}
	if peer.NamespaceSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(peer.NamespaceSelector, r.selectors, path.Child("namespaceSelector"))...)
	}
	selected := peer.PodSelector != nil || peer.NamespaceSelector != nil
	if peer.IPBlock != nil {
		errs = append(errs, r.block(peer.IPBlock, path.Child("ipBlock"))...)
		if selected {
			errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
		}
		return errs
	}
	if !selected {
		errs = append(errs, field.Required(path, "must specify a peer"))
	}
	return errs
}

func (r policyRules) block(block *networkingv1.IPBlock, path *field.Path) field.ErrorList {
	if block.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "").MarkCoveredByDeclarative()}
	}
	errs := utilvalidation.IsValidCIDRForLegacyField(path.Child("cidr"), block.CIDR, strict, r.knownCIDRs)
	_, whole, err := netutils.ParseCIDRSloppy(block.CIDR)
	if err != nil {
		return errs
	}
	for i, except := range block.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(at, except, strict, r.knownCIDRs)...)
		_, part, err := netutils.ParseCIDRSloppy(except)
		if err == nil && !strictSubset(part, whole) {
			errs = append(errs, field.Invalid(at, except, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

func strictSubset(part, whole *net.IPNet) bool {
	partBits, _ := part.Mask.Size()
	wholeBits, _ := whole.Mask.Size()
	return whole.Contains(part.IP) && wholeBits < partBits
}
