// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

type direction int

const (
	ingress direction = iota
	egress
	directions
)

func (d direction) String() string { return [...]string{"ingress", "egress"}[d] }

// isolated is the end of a connection that a policy of this direction selects, remote the other one.
func (d direction) isolated(f family) string {
	if d == ingress {
		return f.server()
	}
	return f.client()
}

func (d direction) remote(f family) string { return (1 - d).isolated(f) }

// policy is a NetworkPolicy or a ClusterNetworkPolicy with its selectors parsed.
type policy struct {
	// spec is that of the API, by which changes are detected.
	spec any
	tier tier
	// priority is that of a ClusterNetworkPolicy: policies with lower ones come first in their tier.
	priority int32
	// subject selects the pods that the policy isolates. It is a peer without spans and port.
	subject  peer
	isolates [directions]bool
	rules    [directions][]rule
}

// rule applies an action to connections between the isolated pods and others. Those of NetworkPolicies accept.
type rule struct {
	action action
	// anyone is set if the rule names no peers.
	anyone bool
	peers  []peer
	spans  []span
	// ports are empty if all ports of all protocols are allowed.
	ports []port
	// named has the peers of egress rules, for each named port.
	named []peer
}

// port is a range of ports, or a name.
type port struct {
	protocol corev1.Protocol
	name     string
	from, to int
}

// parse returns what is valid of a policy, and errors of the rest: a peer that cannot be parsed is not allowed
// anything. It returns nil if it is not known which pods are selected. The API server accepts no such policies.
func parse(np *networkingv1.NetworkPolicy) (*policy, error) {
	selector, err := metav1.LabelSelectorAsSelector(&np.Spec.PodSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.podSelector: %w", err)
	}
	p := &policy{spec: np.Spec, tier: networkTier, subject: peer{namespace: np.Namespace, pods: selector}}
	types := np.Spec.PolicyTypes
	p.isolates[ingress] = len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)
	p.isolates[egress] = len(types) == 0 && len(np.Spec.Egress) > 0 || slices.Contains(types, networkingv1.PolicyTypeEgress)
	var errs []error
	if p.isolates[ingress] {
		for i, r := range np.Spec.Ingress {
			parsed, err := parseRule(np.Namespace, ingress, r.From, r.Ports)
			p.rules[ingress] = append(p.rules[ingress], parsed)
			errs = append(errs, in(fmt.Sprintf("spec.ingress[%d]", i), err))
		}
	}
	if p.isolates[egress] {
		for i, r := range np.Spec.Egress {
			parsed, err := parseRule(np.Namespace, egress, r.To, r.Ports)
			p.rules[egress] = append(p.rules[egress], parsed)
			errs = append(errs, in(fmt.Sprintf("spec.egress[%d]", i), err))
		}
	}
	return p, errors.Join(errs...)
}

func in(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

func parseRule(namespace string, d direction, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) (rule, error) {
	r := rule{anyone: len(peers) == 0}
	for _, p := range ports {
		r.ports = append(r.ports, parsePort(p))
	}
	var errs []error
	for _, p := range peers {
		errs = append(errs, r.addPeer(namespace, p))
	}
	r.spans = merge(r.spans)
	if d == egress {
		r.namePeers()
	}
	return r, errors.Join(errs...)
}

func (r *rule) addPeer(namespace string, p networkingv1.NetworkPolicyPeer) error {
	if p.IPBlock != nil {
		spans, err := blockSpans(*p.IPBlock)
		if err == nil {
			r.spans = append(r.spans, spans...)
		}
		return err
	}
	selected, err := selectorPeer(namespace, p)
	if err == nil {
		r.peers = append(r.peers, selected)
	}
	return err
}

func parsePort(p networkingv1.NetworkPolicyPort) port {
	parsed := port{protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP)}
	switch {
	case p.Port == nil:
		parsed.to = 65535
	case p.Port.Type == intstr.String:
		parsed.name = p.Port.StrVal
	default:
		parsed.from = p.Port.IntValue()
		parsed.to = max(parsed.from, int(ptr.Deref(p.EndPort, 0)))
	}
	return parsed
}

// namePeers sets the peers for named ports of an egress rule: the number is that of each destination.
func (r *rule) namePeers() {
	var peers []peer
	for _, p := range r.peers {
		if p.nodes == nil {
			peers = append(peers, p)
		}
	}
	if r.anyone {
		peers = append(peers, anyPod())
	}
	if len(r.spans) > 0 {
		within := anyPod()
		within.spans = r.spans
		peers = append(peers, within)
	}
	for _, port := range r.ports {
		if port.name == "" {
			continue
		}
		for _, p := range peers {
			r.named = append(r.named, p.withPort(namedPort{port.protocol, port.name}))
		}
	}
}

// all returns the peers of which the policy needs sets.
func (p *policy) all() []peer {
	var all []peer
	for _, rules := range p.rules {
		for _, r := range rules {
			all = append(append(all, r.peers...), r.named...)
		}
	}
	return all
}

// names returns the named ports of the pods that ingress rules allow.
func (p *policy) names() []namedPort {
	var names []namedPort
	for _, r := range p.rules[ingress] {
		for _, port := range r.ports {
			if port.name != "" {
				names = append(names, namedPort{port.protocol, port.name})
			}
		}
	}
	return names
}

// lines returns the rules of nft for a rule, which end in a verdict. numbers are the isolated pods' named ports.
func (r rule) lines(d direction, f family, numbers map[namedPort][]string, verdict string) []string {
	var lines []string
	for _, who := range r.who(d, f) {
		for _, what := range r.what(d, numbers) {
			lines = append(lines, strings.Join(append(append(slices.Clone(who), what...), verdict), " "))
		}
	}
	for _, p := range r.named {
		// nft 1.0.6 cannot concatenate "ct reply proto-src".
		for _, at := range []string{"original %s . meta l4proto . th dport", "reply %s . meta l4proto . th sport"} {
			lines = append(lines, fmt.Sprintf("ct direction "+at+" @%s %s", f.server(), p.setName(f), verdict))
		}
	}
	return lines
}

// who returns the matches of peers, of which one must match.
func (r rule) who(d direction, f family) [][]string {
	if r.anyone {
		return [][]string{nil}
	}
	var who [][]string
	for _, p := range r.peers {
		who = append(who, []string{d.remote(f), "@" + p.setName(f)})
	}
	if elements := f.elements(r.spans); elements != "" {
		who = append(who, []string{d.remote(f), elements})
	}
	return who
}

// what returns the matches of numbered ports, of which one must match.
func (r rule) what(d direction, numbers map[namedPort][]string) [][]string {
	if len(r.ports) == 0 {
		return [][]string{nil}
	}
	var what [][]string
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		ranges := r.ranges(d, p, numbers)
		switch {
		case len(ranges) == 0:
		case ranges[0] == [2]int{0, 65535}:
			what = append(what, []string{"meta l4proto", protocol(p)})
		default:
			what = append(what, []string{"meta l4proto", protocol(p), "ct reply proto-src", portElements(ranges)})
		}
	}
	return what
}

// ranges returns the numbered ports of a protocol, sorted, without overlaps.
func (r rule) ranges(d direction, protocol corev1.Protocol, numbers map[namedPort][]string) [][2]int {
	var ranges [][2]int
	for _, p := range r.ports {
		switch {
		case p.protocol != protocol:
		case p.name == "":
			ranges = append(ranges, [2]int{p.from, p.to})
		case d == ingress:
			for _, number := range numbers[namedPort{p.protocol, p.name}] {
				n, _ := strconv.Atoi(number)
				ranges = append(ranges, [2]int{n, n})
			}
		}
	}
	slices.SortFunc(ranges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	var merged [][2]int
	for _, next := range ranges {
		if n := len(merged); n > 0 && next[0] <= merged[n-1][1]+1 {
			merged[n-1][1] = max(merged[n-1][1], next[1])
			continue
		}
		merged = append(merged, next)
	}
	return merged
}

func portElements(ranges [][2]int) string {
	var all []string
	for _, r := range ranges {
		if r[0] == r[1] {
			all = append(all, strconv.Itoa(r[0]))
			continue
		}
		all = append(all, fmt.Sprintf("%d-%d", r[0], r[1]))
	}
	return anonymous(all)
}

// anonymous returns what matches any of the elements: a single one needs no set. nft reads all sets before each change.
func anonymous(elements []string) string {
	if len(elements) == 1 {
		return elements[0]
	}
	return "{ " + strings.Join(elements, ", ") + " }"
}
