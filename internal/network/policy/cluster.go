// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// tier is a group of policies. The tiers are in the order in which they are evaluated.
type tier int

const (
	adminTier tier = iota
	networkTier
	baselineTier
	tiers
)

// action is the effect of a rule on the connections that it matches.
type action int

const (
	accept action = iota
	deny
	// pass skips the rest of the tier.
	pass
	actions
)

// verdicts are those of nft for the actions of a tier.
type verdicts [actions]string

// clusterWide is the namespace of ClusterNetworkPolicies among those of policies.
const clusterWide = ""

// SetClusterPolicy adds or changes a ClusterNetworkPolicy. A part that is invalid or not supported fails closed, as the API
// demands: an Accept rule with it matches nothing, another one denies all connections of its direction. A policy without a
// valid subject selects no pods. The error names these parts.
func (c *Compiler) SetClusterPolicy(cnp *v1alpha2.ClusterNetworkPolicy) error {
	key := policyKey(clusterWide, cnp.Name)
	if old := c.policies[key]; old != nil && equality.Semantic.DeepEqual(old.spec, any(cnp.Spec)) {
		return nil
	}
	now, err := parseCluster(cnp.Spec)
	c.setPolicy(key, clusterWide, now)
	return err
}

// DeleteClusterPolicy removes a ClusterNetworkPolicy.
func (c *Compiler) DeleteClusterPolicy(name string) {
	c.setPolicy(policyKey(clusterWide, name), clusterWide, nil)
}

// parseCluster returns nil if it is not known which pods are selected, or in which tier.
func parseCluster(spec v1alpha2.ClusterNetworkPolicySpec) (*policy, error) {
	p := &policy{spec: spec, priority: spec.Priority}
	switch spec.Tier {
	case v1alpha2.AdminTier:
		p.tier = adminTier
	case v1alpha2.BaselineTier:
		p.tier = baselineTier
	default:
		return nil, fmt.Errorf("spec.tier: %q is not known; the policy selects no pods", spec.Tier)
	}
	var err error
	if p.subject, err = podsPeer(spec.Subject.Namespaces, spec.Subject.Pods); err != nil {
		return nil, fmt.Errorf("spec.subject: %w; the policy selects no pods", err)
	}
	var errs []error
	add := func(d direction, i int, name string, act v1alpha2.ClusterNetworkPolicyRuleAction, parsed rule, err error) {
		parsed.action, err = parseAction(act, err)
		if err != nil {
			parsed = failClosed(parsed.action)
			errs = append(errs, fmt.Errorf("spec.%s[%d] %s: %w; %s", d, i, name, err, consequence(parsed.action)))
		}
		p.isolates[d] = true
		p.rules[d] = append(p.rules[d], parsed)
	}
	for i, r := range spec.Ingress {
		parsed, err := parseClusterIngress(r)
		add(ingress, i, r.Name, r.Action, parsed, err)
	}
	for i, r := range spec.Egress {
		parsed, err := parseClusterEgress(r)
		add(egress, i, r.Name, r.Action, parsed, err)
	}
	return p, errors.Join(errs...)
}

// parseAction returns the action, or deny and an error. It keeps an earlier error.
func parseAction(a v1alpha2.ClusterNetworkPolicyRuleAction, earlier error) (action, error) {
	switch a {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept:
		return accept, earlier
	case v1alpha2.ClusterNetworkPolicyRuleActionDeny:
		return deny, earlier
	case v1alpha2.ClusterNetworkPolicyRuleActionPass:
		return pass, earlier
	}
	return deny, errors.Join(earlier, fmt.Errorf("action %q is not known", a))
}

// failClosed returns the rule that replaces one that cannot be applied.
func failClosed(a action) rule {
	if a == accept {
		return rule{}
	}
	return rule{action: deny, anyone: true}
}

func consequence(a action) string {
	if a == accept {
		return "the rule accepts nothing"
	}
	return "the rule denies all connections"
}

func parseClusterIngress(r v1alpha2.ClusterNetworkPolicyIngressRule) (rule, error) {
	var parsed rule
	for _, from := range r.From {
		p, err := podsPeer(from.Namespaces, from.Pods)
		if err != nil {
			return rule{}, fmt.Errorf("from: %w", err)
		}
		parsed.peers = append(parsed.peers, p)
	}
	return parsed, parsed.addProtocols(r.Protocols)
}

func parseClusterEgress(r v1alpha2.ClusterNetworkPolicyEgressRule) (rule, error) {
	var parsed rule
	for _, to := range r.To {
		if err := parsed.addDestination(to); err != nil {
			return rule{}, fmt.Errorf("to: %w", err)
		}
	}
	parsed.spans = merge(parsed.spans)
	if err := parsed.addProtocols(r.Protocols); err != nil {
		return rule{}, err
	}
	parsed.namePeers()
	return parsed, nil
}

func (r *rule) addDestination(to v1alpha2.ClusterNetworkPolicyEgressPeer) error {
	switch {
	case len(to.DomainNames) > 0:
		return errors.New("domainNames are not supported")
	case to.Nodes != nil:
		selector, err := metav1.LabelSelectorAsSelector(to.Nodes)
		r.peers = append(r.peers, peer{nodes: selector})
		return err
	case len(to.Networks) > 0:
		for _, cidr := range to.Networks {
			spans, err := blockSpans(networkingv1.IPBlock{CIDR: string(cidr)})
			if err != nil {
				return err
			}
			r.spans = append(r.spans, spans...)
		}
		return nil
	}
	p, err := podsPeer(to.Namespaces, to.Pods)
	r.peers = append(r.peers, p)
	return err
}

// podsPeer returns the peer of the only selector that is set.
func podsPeer(namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod) (peer, error) {
	podSelector := &metav1.LabelSelector{}
	switch {
	case namespaces != nil && pods == nil:
	case namespaces == nil && pods != nil:
		namespaces, podSelector = &pods.NamespaceSelector, &pods.PodSelector
	default:
		return peer{}, errors.New("no field that is known is set, or several")
	}
	var selected peer
	var err error
	if selected.namespaces, err = metav1.LabelSelectorAsSelector(namespaces); err != nil {
		return peer{}, err
	}
	selected.pods, err = metav1.LabelSelectorAsSelector(podSelector)
	return selected, err
}

func (r *rule) addProtocols(protocols []v1alpha2.ClusterNetworkPolicyProtocol) error {
	for _, p := range protocols {
		switch {
		case p.TCP != nil:
			if err := r.addPort(corev1.ProtocolTCP, p.TCP.DestinationPort); err != nil {
				return err
			}
		case p.UDP != nil:
			if err := r.addPort(corev1.ProtocolUDP, p.UDP.DestinationPort); err != nil {
				return err
			}
		case p.SCTP != nil:
			if err := r.addPort(corev1.ProtocolSCTP, p.SCTP.DestinationPort); err != nil {
				return err
			}
		case p.DestinationNamedPort != "":
			// A name is one of any protocol.
			for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
				r.ports = append(r.ports, port{protocol: protocol, name: p.DestinationNamedPort})
			}
		default:
			return errors.New("protocols: no field that is known is set")
		}
	}
	return nil
}

// addPort adds the ports of a protocol: all if p is nil.
func (r *rule) addPort(protocol corev1.Protocol, p *v1alpha2.Port) error {
	parsed := port{protocol: protocol}
	switch {
	case p == nil:
		parsed.to = 65535
	case p.Range != nil:
		parsed.from, parsed.to = int(p.Range.Start), int(p.Range.End)
	case p.Number != 0:
		parsed.from, parsed.to = int(p.Number), int(p.Number)
	default:
		return errors.New("protocols: destinationPort has no field that is known")
	}
	if parsed.from > parsed.to {
		return fmt.Errorf("protocols: the range of ports ends before it starts: %d-%d", parsed.from, parsed.to)
	}
	r.ports = append(r.ports, parsed)
	return nil
}
