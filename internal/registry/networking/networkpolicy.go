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

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// strict refuses ambiguous addresses, such as with leading zeros.
const strict = true

// NetworkPolicy limits the ingress and egress traffic of pods.
var NetworkPolicy = generic.Kind[*networkingv1.NetworkPolicy]{
	Name: "NetworkPolicy", Plural: "networkpolicies", ShortNames: []string{"netpol"},
	New:     func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
	NewList: func() runtime.Object { return &networkingv1.NetworkPolicyList{} },
	Spec:    func(p *networkingv1.NetworkPolicy) any { return &p.Spec },
	Validate: func(_ context.Context, c *check.Checker, p *networkingv1.NetworkPolicy) {
		policyRules{}.spec(c, &p.Spec, field.NewPath("spec"))
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

// policyRules checks the spec of a NetworkPolicy. An update may keep values that older versions
// accepted.
type policyRules struct {
	knownCIDRs []string
	selectors  metav1validation.LabelSelectorValidationOptions
}

func validateNetworkPolicyUpdate(_ context.Context, c *check.Checker, p, old *networkingv1.NetworkPolicy) {
	var rules policyRules
	eachBlock(&old.Spec, func(block *networkingv1.IPBlock, _ *field.Path) {
		rules.knownCIDRs = append(append(rules.knownCIDRs, block.CIDR), block.Except...)
	})
	rules.selectors.AllowInvalidLabelValueInSelector = len(metav1validation.ValidateLabelSelector(&old.Spec.PodSelector, rules.selectors, nil)) > 0
	rules.spec(c, &p.Spec, field.NewPath("spec"))
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

func (r policyRules) spec(c *check.Checker, spec *networkingv1.NetworkPolicySpec, path *field.Path) {
	c.Add(metav1validation.ValidateLabelSelector(&spec.PodSelector, r.selectors, path.Child("podSelector"))...)
	for i, rule := range spec.Ingress {
		at := path.Child("ingress").Index(i)
		validatePolicyPorts(c, rule.Ports, at.Child("ports"))
		r.peers(c, rule.From, at.Child("from"))
	}
	for i, rule := range spec.Egress {
		at := path.Child("egress").Index(i)
		validatePolicyPorts(c, rule.Ports, at.Child("ports"))
		r.peers(c, rule.To, at.Child("to"))
	}
	validatePolicyTypes(c, spec.PolicyTypes, path.Child("policyTypes"))
}

func validatePolicyTypes(c *check.Checker, types []networkingv1.PolicyType, path *field.Path) {
	if len(types) > 2 {
		c.Invalid(path, &types, "may not specify more than two policyTypes")
		return
	}
	for i, t := range types {
		check.OneOf(c, path.Index(i), t, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	}
}

func validatePolicyPorts(c *check.Checker, ports []networkingv1.NetworkPolicyPort, path *field.Path) {
	for i := range ports {
		validatePolicyPort(c, &ports[i], path.Index(i))
	}
}

func validatePolicyPort(c *check.Checker, p *networkingv1.NetworkPolicyPort, path *field.Path) {
	check.OptionalOneOf(c, path.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	port, end := path.Child("port"), path.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			c.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified")
		}
	case p.Port.Type == intstr.Int:
		c.PortNumber(port, p.Port.IntVal)
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			c.Invalid(end, *p.EndPort, "must be greater than or equal to `port`")
		}
		c.PortNumber(end, *p.EndPort)
	default:
		if p.EndPort != nil {
			c.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric")
		}
		c.Invalid(port, p.Port.StrVal, utilvalidation.IsValidPortName(p.Port.StrVal)...)
	}
}

func (r policyRules) peers(c *check.Checker, peers []networkingv1.NetworkPolicyPeer, path *field.Path) {
	for i := range peers {
		r.peer(c, &peers[i], path.Index(i))
	}
}

func (r policyRules) peer(c *check.Checker, peer *networkingv1.NetworkPolicyPeer, path *field.Path) {
	if peer.PodSelector != nil {
		c.Add(metav1validation.ValidateLabelSelector(peer.PodSelector, r.selectors, path.Child("podSelector"))...)
	}
	if peer.NamespaceSelector != nil {
		c.Add(metav1validation.ValidateLabelSelector(peer.NamespaceSelector, r.selectors, path.Child("namespaceSelector"))...)
	}
	selected := peer.PodSelector != nil || peer.NamespaceSelector != nil
	if peer.IPBlock != nil {
		r.block(c, peer.IPBlock, path.Child("ipBlock"))
		if selected {
			c.Forbidden(path, "may not specify both ipBlock and another peer")
		}
		return
	}
	if !selected {
		c.Required(path, "must specify a peer")
	}
}

func (r policyRules) block(c *check.Checker, block *networkingv1.IPBlock, path *field.Path) {
	if block.CIDR == "" {
		c.Declared().Required(path.Child("cidr"), "")
		return
	}
	c.Add(utilvalidation.IsValidCIDRForLegacyField(path.Child("cidr"), block.CIDR, strict, r.knownCIDRs)...)
	_, whole, err := netutils.ParseCIDRSloppy(block.CIDR)
	if err != nil {
		return
	}
	for i, except := range block.Except {
		at := path.Child("except").Index(i)
		c.Add(utilvalidation.IsValidCIDRForLegacyField(at, except, strict, r.knownCIDRs)...)
		_, part, err := netutils.ParseCIDRSloppy(except)
		if err == nil && !strictSubset(part, whole) {
			c.Invalid(at, except, "must be a strict subset of `cidr`")
		}
	}
}

func strictSubset(part, whole *net.IPNet) bool {
	partBits, _ := part.Mask.Size()
	wholeBits, _ := whole.Mask.Size()
	return whole.Contains(part.IP) && wholeBits < partBits
}
