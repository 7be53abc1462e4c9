// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func allowPort(p networkingv1.NetworkPolicyPort) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
		Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{p}}},
	}}
}

func allowTo(peers ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: peers}},
	}}
}

func allowRange(cidr string, except ...string) *networkingv1.NetworkPolicy {
	return allowTo(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}})
}

func TestNetworkPolicyValidation(t *testing.T) {
	type (
		port = networkingv1.NetworkPolicyPort
		peer = networkingv1.NetworkPolicyPeer
	)
	number := func(n int) *intstr.IntOrString { return new(intstr.FromInt(n)) }
	all, bad := &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}
	badValue := validation.IsValidLabelValue("b c")[0]
	const portPath, peerPath = "spec.ingress[0].ports[0]", "spec.egress[0].to[0]"
	for name, test := range map[string]struct {
		policy *networkingv1.NetworkPolicy
		want   []string
	}{
		"deny":                      {&networkingv1.NetworkPolicy{}, nil},
		"a selector":                {&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: *bad}}, []string{`spec.podSelector.matchLabels: Invalid value: "b c": ` + badValue}},
		"any port":                  {allowPort(port{}), nil},
		"a range":                   {allowPort(port{Port: number(80), EndPort: new(int32(90))}), nil},
		"a name":                    {allowPort(port{Port: new(intstr.FromString("http"))}), nil},
		"a protocol":                {allowPort(port{Protocol: new(corev1.Protocol("ICMP"))}), []string{portPath + `.protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"`}},
		"no number":                 {allowPort(port{Port: number(0)}), []string{portPath + ".port: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		"endPort without port":      {allowPort(port{EndPort: new(int32(1))}), []string{portPath + ".endPort: Invalid value: 1: may not be specified when `port` is not specified"}},
		"backwards":                 {allowPort(port{Port: number(80), EndPort: new(int32(0))}), []string{portPath + ".endPort: Invalid value: 0: must be greater than or equal to `port`", portPath + ".endPort: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		"endPort with a named port": {allowPort(port{Port: new(intstr.FromString("-")), EndPort: new(int32(1))}), []string{portPath + ".endPort: Invalid value: 1: may not be specified when `port` is non-numeric", portPath + `.port: Invalid value: "-": must contain at least one letter (a-z)`, portPath + `.port: Invalid value: "-": must not begin or end with a hyphen`}},
		"both selectors":            {allowTo(peer{PodSelector: all, NamespaceSelector: all}), nil},
		"bad selectors":             {allowTo(peer{PodSelector: bad, NamespaceSelector: bad}), []string{peerPath + `.podSelector.matchLabels: Invalid value: "b c": ` + badValue, peerPath + `.namespaceSelector.matchLabels: Invalid value: "b c": ` + badValue}},
		"empty peer":                {allowTo(peer{}), []string{peerPath + ": Required value: must specify a peer"}},
		"too many peers":            {allowTo(peer{PodSelector: all, IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}), []string{peerPath + ": Forbidden: may not specify both ipBlock and another peer"}},
		"a block":                   {allowRange("10.0.0.0/8", "10.1.0.0/16"), nil},
		"no block":                  {allowRange(""), []string{peerPath + ".ipBlock.cidr: Required value"}},
		"not a block":               {allowRange("ten", "10.1.0.0/16"), []string{peerPath + `.ipBlock.cidr: Invalid value: "ten": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`}},
		"bits too many":             {allowRange("10.0.0.1/8"), []string{peerPath + `.ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length`}},
		"exceptions": {allowRange("10.0.0.0/16", "x", "10.0.0.0/16", "10.1.0.0/24"), []string{
			peerPath + `.ipBlock.except[0]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`,
			peerPath + ".ipBlock.except[1]: Invalid value: \"10.0.0.0/16\": must be a strict subset of `cidr`",
			peerPath + ".ipBlock.except[2]: Invalid value: \"10.1.0.0/24\": must be a strict subset of `cidr`"}},
		"a type":         {&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress", "Both"}}}, []string{`spec.policyTypes[1]: Unsupported value: "Both": supported values: "Ingress", "Egress"`}},
		"too many types": {&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress", "Both", "a"}}}, []string{`spec.policyTypes: Invalid value: ["Egress","Both","a"]: may not specify more than two policyTypes`}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), NetworkPolicy.Validate, test.policy), test.want...)
		})
	}
}

// TestNetworkPolicyUpdate checks that values that older versions accepted stay valid, even in
// another place.
func TestNetworkPolicyUpdate(t *testing.T) {
	old := allowRange("10.0.0.1/8", "010.1.0.0/16")
	moved := &networkingv1.NetworkPolicy{}
	moved.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: old.Spec.Egress[0].To}}
	compare(t, checktest.UpdateErrors(t.Context(), NetworkPolicy.ValidateUpdate, moved, old))
	compare(t, checktest.UpdateErrors(t.Context(), NetworkPolicy.ValidateUpdate, allowRange("10.0.0.2/8"), old),
		`spec.egress[0].to[0].ipBlock.cidr: Invalid value: "10.0.0.2/8": must not have bits set beyond the prefix length`)

	bad := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{"b c"}}}}}}
	compare(t, checktest.UpdateErrors(t.Context(), NetworkPolicy.ValidateUpdate, bad, bad))
	if errs := checktest.UpdateErrors(t.Context(), NetworkPolicy.ValidateUpdate, bad, &networkingv1.NetworkPolicy{}); len(errs) != 1 {
		t.Errorf("a new bad selector: %v", errs)
	}
}

func TestNetworkPolicyDefaultsAndColumns(t *testing.T) {
	for want, p := range map[string]*networkingv1.NetworkPolicy{
		"Ingress":        allowPort(networkingv1.NetworkPolicyPort{}),
		"Ingress,Egress": allowTo(),
		"Egress":         {Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}},
	} {
		SetObjectDefaults_NetworkPolicy(p)
		var types []string
		for _, policyType := range p.Spec.PolicyTypes {
			types = append(types, string(policyType))
		}
		if got := strings.Join(types, ","); got != want {
			t.Errorf("types %s, want %s", got, want)
		}
		for _, rule := range p.Spec.Ingress {
			if got := rule.Ports[0].Protocol; *got != corev1.ProtocolTCP {
				t.Errorf("protocol %v", *got)
			}
		}
		if got := NetworkPolicy.Columns[0].Cell(p); got != "<none>" {
			t.Errorf("selector %v", got)
		}
	}
}

func TestNetworkPolicyWarnings(t *testing.T) {
	p := allowRange("2001:DB8::/32", "2001:db8:0::/48")
	want := []string{
		`spec.egress[0].to[0].ipBlock.cidr: IPv6 CIDR value "2001:DB8::/32" should be in RFC 5952 canonical format ("2001:db8::/32")`,
		`spec.egress[0].to[0].ipBlock.except[0]: IPv6 CIDR value "2001:db8:0::/48" should be in RFC 5952 canonical format ("2001:db8::/48")`,
	}
	if diff := cmp.Diff(want, NetworkPolicy.Warnings(t.Context(), p, nil)); diff != "" {
		t.Error(diff)
	}
}
