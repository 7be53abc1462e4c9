// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

const (
	acceptAll = v1alpha2.ClusterNetworkPolicyRuleActionAccept
	denyAll   = v1alpha2.ClusterNetworkPolicyRuleActionDeny
	passAll   = v1alpha2.ClusterNetworkPolicyRuleActionPass
)

// cnp selects the pod web, and has an ingress rule from a pod for each action.
func cnp(name string, tier v1alpha2.Tier, priority int32, pod string, actions ...v1alpha2.ClusterNetworkPolicyRuleAction) *v1alpha2.ClusterNetworkPolicy {
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec = v1alpha2.ClusterNetworkPolicySpec{Tier: tier, Priority: priority, Subject: v1alpha2.ClusterNetworkPolicySubject{Pods: podsNamed("web")}}
	for _, a := range actions {
		p.Spec.Ingress = append(p.Spec.Ingress, v1alpha2.ClusterNetworkPolicyIngressRule{
			Action: a, From: []v1alpha2.ClusterNetworkPolicyIngressPeer{{Pods: podsNamed(pod)}},
		})
	}
	return p
}

func podsNamed(name string) *v1alpha2.NamespacedPod {
	return &v1alpha2.NamespacedPod{PodSelector: *label("pod", name)}
}

func tcp(number int32) []v1alpha2.ClusterNetworkPolicyProtocol {
	return []v1alpha2.ClusterNetworkPolicyProtocol{{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: &v1alpha2.Port{Number: number}}}}
}

// chains returns the chains of ingress, with names instead of hashes of sets.
func chains(t *testing.T, all Objects) string {
	t.Helper()
	fragments, errs := Compile(options, all)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	names := []string{}
	for _, pod := range []string{"a", "b"} {
		p, err := podsPeer(nil, podsNamed(pod))
		must(t, err)
		names = append(names, p.setName(ipv4), pod)
	}
	var lines []string
	for source, f := range fragments {
		if !strings.HasPrefix(source, "policy/ingress/") {
			continue
		}
		hash := strings.TrimPrefix(source, "policy/ingress/")
		for name, c := range f.Chains {
			lines = append(lines, name+":\n  "+strings.Join(c.Rules, "\n  ")+"\n")
		}
		names = append(names, "-"+hash, "")
	}
	slices.Sort(lines)
	return strings.NewReplacer(names...).Replace(strings.Join(lines, ""))
}

func TestOrderOfTiers(t *testing.T) {
	pods := []*corev1.Pod{(&host{name: "web", v4: "10.0.0.2"}).pod("default")}
	pods[0].Status.PodIPs = pods[0].Status.PodIPs[:1]
	isolating := np("np", "web", toPods)
	isolating.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: numbered(corev1.ProtocolTCP, port80)}}
	for name, test := range map[string]struct {
		cluster  []*v1alpha2.ClusterNetworkPolicy
		policies []*networkingv1.NetworkPolicy
		want     string
	}{
		"priorities, then names": {
			cluster: []*v1alpha2.ClusterNetworkPolicy{
				cnp("z", v1alpha2.AdminTier, 1, "b", denyAll), cnp("y", v1alpha2.AdminTier, 2, "a", acceptAll),
				cnp("x", v1alpha2.AdminTier, 2, "a", denyAll), cnp("w", v1alpha2.AdminTier, 1000, "b", acceptAll),
			},
			want: `policy-ingress4:
  ct original ip saddr @b drop
  ct original ip saddr @a drop
  ct original ip saddr @a return
  ct original ip saddr @b return
`,
		},
		"Pass goes on behind the tier, NetworkPolicies end": {
			cluster:  []*v1alpha2.ClusterNetworkPolicy{cnp("x", v1alpha2.AdminTier, 1, "a", passAll, denyAll), cnp("b", v1alpha2.BaselineTier, 1, "b", denyAll)},
			policies: []*networkingv1.NetworkPolicy{isolating},
			want: `policy-ingress4-passed:
  meta l4proto tcp ct reply proto-src 80 return
  drop
policy-ingress4:
  ct original ip saddr @a goto policy-ingress4-passed
  ct original ip saddr @a drop
  goto policy-ingress4-passed
`,
		},
		"the Baseline tier without NetworkPolicies": {
			cluster: []*v1alpha2.ClusterNetworkPolicy{cnp("x", v1alpha2.AdminTier, 1, "a", acceptAll), cnp("b", v1alpha2.BaselineTier, 1, "b", passAll, denyAll)},
			want: `policy-ingress4:
  ct original ip saddr @a return
  ct original ip saddr @b return
  ct original ip saddr @b drop
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := chains(t, Objects{Pods: pods, Policies: test.policies, Cluster: test.cluster})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Unknown and unsupported parts fail closed.
func TestInvalidClusterPolicy(t *testing.T) {
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	to := func(a v1alpha2.ClusterNetworkPolicyRuleAction, p v1alpha2.ClusterNetworkPolicyEgressPeer, protocols ...v1alpha2.ClusterNetworkPolicyProtocol) *v1alpha2.ClusterNetworkPolicy {
		c := cnp("x", v1alpha2.AdminTier, 1, "a")
		c.Spec.Egress = []v1alpha2.ClusterNetworkPolicyEgressRule{{
			Name: "first", Action: a, Protocols: protocols,
			To: []v1alpha2.ClusterNetworkPolicyEgressPeer{{Networks: []v1alpha2.CIDR{"10.0.0.0/8"}}, p},
		}}
		return c
	}
	domains := v1alpha2.ClusterNetworkPolicyEgressPeer{DomainNames: []v1alpha2.DomainName{"example.com"}}
	valid := v1alpha2.ClusterNetworkPolicyEgressPeer{Pods: podsNamed("a")}
	subject := to(denyAll, valid)
	subject.Spec.Subject = v1alpha2.ClusterNetworkPolicySubject{Namespaces: invalid}
	tier := to(denyAll, valid)
	tier.Spec.Tier = "Middle"
	for name, test := range map[string]struct {
		policy *v1alpha2.ClusterNetworkPolicy
		want   string
		rules  string
	}{
		"domains": {to(acceptAll, domains), "spec.egress[0] first: to: domainNames are not supported; the rule accepts nothing", ""},
		"domains of a Deny": {
			to(denyAll, domains), "spec.egress[0] first: to: domainNames are not supported; the rule denies all connections", "drop",
		},
		"unknown peer":     {to(passAll, v1alpha2.ClusterNetworkPolicyEgressPeer{}), "spec.egress[0] first: to: no field that is known is set, or several; the rule denies all connections", "drop"},
		"unknown action":   {to("Log", valid), `spec.egress[0] first: action "Log" is not known; the rule denies all connections`, "drop"},
		"unknown protocol": {to(acceptAll, valid, v1alpha2.ClusterNetworkPolicyProtocol{}), "spec.egress[0] first: protocols: no field that is known is set; the rule accepts nothing", ""},
		"unknown port": {
			to(denyAll, valid, v1alpha2.ClusterNetworkPolicyProtocol{UDP: &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: &v1alpha2.Port{}}}),
			"spec.egress[0] first: protocols: destinationPort has no field that is known; the rule denies all connections", "drop",
		},
		"operator": {to(denyAll, v1alpha2.ClusterNetworkPolicyEgressPeer{Nodes: invalid}), `spec.egress[0] first: to: "Near" is not a valid label selector operator; the rule denies all connections`, "drop"},
		"subject":  {subject, `spec.subject: "Near" is not a valid label selector operator; the policy selects no pods`, "none"},
		"tier":     {tier, `spec.tier: "Middle" is not known; the policy selects no pods`, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(options)
			c.SetPod((&host{name: "web", v4: "10.0.0.2", v6: "fd00::2"}).pod("default"))
			if err := c.SetClusterPolicy(test.policy); err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
			got := "none"
			for source, f := range c.Changes() {
				for _, chain := range f.Chains {
					if strings.HasPrefix(source, "policy/egress/") {
						got = strings.Join(chain.Rules, "\n")
					}
				}
			}
			if got != test.rules {
				t.Errorf("got the rules %q, want %q", got, test.rules)
			}
		})
	}
}
