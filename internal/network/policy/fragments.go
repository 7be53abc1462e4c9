// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/knftables"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// regroup puts a pod into the group of the policies that isolate it.
func (c *Compiler) regroup(p *pod, d direction) {
	policies := slices.Sorted(maps.Keys(p.selectedBy[d]))
	if len(policies) == 0 || len(p.addresses) == 0 {
		c.leave(p, d)
		return
	}
	numbers, used := map[namedPort][]string{}, []string{}
	if d == ingress {
		for _, key := range policies {
			for _, name := range c.policies[key].names() {
				numbers[name] = slices.Sorted(slices.Values(p.ports[name]))
				used = append(used, fmt.Sprint(name, numbers[name]))
			}
		}
		slices.Sort(used)
	}
	name := hash(fmt.Sprint(d, policies, slices.Compact(used)))
	g := c.groups[name]
	if g == nil {
		g = &group{name: name, direction: d, policies: policies, numbers: numbers, pods: map[*pod]struct{}{}}
		c.groups[name] = g
	}
	if p.groups[d] != g {
		c.leave(p, d)
		p.groups[d] = g
		g.pods[p] = struct{}{}
	}
	c.groups[name] = g
	c.touch(g)
}

func (c *Compiler) leave(p *pod, d direction) {
	g := p.groups[d]
	if g == nil {
		return
	}
	p.groups[d] = nil
	delete(g.pods, p)
	if len(g.pods) == 0 {
		delete(c.groups, g.name)
	}
	c.touch(g)
}

// Refused drops all packets of the pods of a source whose fragment the kernel did not accept, until one of their
// policies changes. It returns these policies; ClusterNetworkPolicies have no namespace.
func (c *Compiler) Refused(source string) []types.NamespacedName {
	for _, g := range c.groups {
		if g.source() != source || g.refused {
			continue
		}
		c.touch(g)
		g.refused = true
		var concerned []types.NamespacedName
		for _, key := range g.policies {
			namespace, name, _ := strings.Cut(key, "/")
			concerned = append(concerned, types.NamespacedName{Namespace: namespace, Name: name})
		}
		return concerned
	}
	return nil
}

// Changes returns the fragments that changed since the last call, by their source. An empty fragment has been
// removed. All of them belong into one transaction.
func (c *Compiler) Changes() map[string]nft.Fragment {
	changes := map[string]nft.Fragment{}
	for s := range c.dirty.sets {
		changes["policy/peers/"+hash(s.id())] = c.setFragment(c.sets[s.id()])
	}
	for g := range c.dirty.groups {
		// A group that lost its pods may be there again, as another value.
		changes[g.source()] = c.groupFragment(c.groups[g.name])
	}
	for key := range c.dirty.pods {
		changes["policy/"+key] = podFragment(c.pods[key])
	}
	if c.dirty.guard {
		changes["policy/guard"] = c.guardFragment()
	}
	clear(c.dirty.sets)
	clear(c.dirty.groups)
	clear(c.dirty.pods)
	c.dirty.guard = false
	return changes
}

func (c *Compiler) families() []family {
	if c.hasIPv6 {
		return families
	}
	return []family{ipv4}
}

func (c *Compiler) setFragment(s *set) (f nft.Fragment) {
	if s == nil {
		return f
	}
	for _, fam := range c.families() {
		s.define(&f, fam)
	}
	for p := range s.pods {
		for _, a := range p.addresses {
			if !c.hasIPv6 && a.Is6() {
				continue
			}
			for _, key := range s.keys(p, a) {
				f.AddElement(s.setName(familyOf(a)), key, "")
			}
		}
	}
	return f
}

// define adds the definition of a peer's set, which the rules that use it need as well.
func (p peer) define(f *nft.Fragment, of family) {
	key := of.address
	if p.port != nil {
		key += " . inet_proto . inet_service"
	}
	f.AddSet(p.setName(of), nft.Set{Type: key})
}

func (g *group) source() string { return "policy/" + g.direction.String() + "/" + g.name }

func (g *group) chain(f family) string {
	return "policy-" + g.direction.String() + f.suffix + "-" + g.name
}

func (c *Compiler) groupFragment(g *group) (f nft.Fragment) {
	if g == nil {
		return f
	}
	for _, fam := range c.families() {
		verdict := "jump " + g.chain(fam)
		if g.refused {
			verdict = "drop"
		}
		isolates := false
		for p := range g.pods {
			for _, a := range p.addresses {
				if fam.has(a) {
					f.AddElement(g.direction.String()+fam.suffix, a.String(), verdict)
					isolates = true
				}
			}
		}
		if isolates && !g.refused {
			c.addChain(&f, g, fam)
		}
	}
	return f
}

func (c *Compiler) addChain(f *nft.Fragment, g *group, fam family) {
	var tiers [tiers][]*policy
	for _, key := range g.policies {
		p := c.policies[key]
		tiers[p.tier] = append(tiers[p.tier], p)
		for _, r := range p.rules[g.direction] {
			for _, selected := range slices.Concat(r.peers, r.named) {
				selected.define(f, fam)
			}
		}
	}
	for i := range tiers {
		// The keys are sorted, so policies of the same priority stay in the order of their names.
		slices.SortStableFunc(tiers[i], func(a, b *policy) int { return cmp.Compare(a.priority, b.priority) })
	}
	rest := g.afterAdmin(tiers[networkTier], tiers[baselineTier], fam)
	if len(tiers[adminTier]) == 0 {
		f.AddChain(g.chain(fam), nft.Chain{Rules: rest})
		return
	}
	passed := g.chain(fam) + "-passed"
	lines := untilAlways(g.lines(tiers[adminTier], fam, verdicts{accept: "return", deny: "drop", pass: "goto " + passed}))
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, passed) }) {
		f.AddChain(g.chain(fam), nft.Chain{Rules: untilAlways(append(lines, rest...))})
		return
	}
	f.AddChain(g.chain(fam), nft.Chain{Rules: untilAlways(append(lines, "goto "+passed))})
	f.AddChain(passed, nft.Chain{Rules: rest})
}

// afterAdmin returns the rules that follow those of the Admin tier. NetworkPolicies decide about all connections of the
// pods that they isolate, so the Baseline tier is for other pods. A chain that ends without a verdict allows.
func (g *group) afterAdmin(network, baseline []*policy, fam family) []string {
	if len(network) > 0 {
		return append(distinct(g.lines(network, fam, verdicts{accept: "return"})), "drop")
	}
	return untilAlways(g.lines(baseline, fam, verdicts{accept: "return", deny: "drop", pass: "return"}))
}

// lines returns the rules of nft for those of policies, in order.
func (g *group) lines(of []*policy, fam family, by verdicts) []string {
	var lines []string
	for _, p := range of {
		for _, r := range p.rules[g.direction] {
			lines = append(lines, r.lines(g.direction, fam, g.numbers, by[r.action])...)
		}
	}
	return lines
}

// untilAlways returns the lines up to the first that matches all packets.
func untilAlways(lines []string) []string {
	always := slices.IndexFunc(lines, func(line string) bool {
		return line == "return" || line == "drop" || strings.HasPrefix(line, "goto ")
	})
	if always >= 0 {
		lines = lines[:always+1]
	}
	return lines
}

// distinct returns the lines of NetworkPolicies without repetitions; only the one that allows all if there is one.
func distinct(lines []string) []string {
	if slices.Contains(lines, "return") {
		return []string{"return"}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(lines, func(line string) bool {
		again := seen[line]
		seen[line] = true
		return again
	})
}

// podFragment makes the addresses of a pod of the node known.
func podFragment(p *pod) (f nft.Fragment) {
	if p == nil || !p.local {
		return f
	}
	for _, a := range p.addresses {
		f.AddElement("known"+familyOf(a).suffix, a.String(), "")
		f.AddElement("self"+familyOf(a).suffix, a.String()+" . "+a.String(), "")
	}
	return f
}

func (c *Compiler) guardFragment() (f nft.Fragment) {
	if len(c.policies) == 0 {
		return f
	}
	for _, r := range c.options.PodRanges {
		f.AddElement("guarded"+familyOf(r.Addr()).suffix, r.Masked().String(), "")
	}
	return f
}

// Known returns the node's pods with their addresses. Their policies are in the fragments that Changes has returned.
func (c *Compiler) Known() []Member {
	var known []Member
	for _, p := range c.pods {
		if !p.local {
			continue
		}
		for _, a := range p.addresses {
			known = append(known, Member{types.UID(p.uid), a})
		}
	}
	return known
}

// HasPolicies reports whether there is any policy.
func (c *Compiler) HasPolicies() bool { return len(c.policies) > 0 }

// Base returns the part that the fragments of all sources need: the chains that the kernel calls, with the maps of
// isolated pods.
func Base() nft.Fragment {
	var f nft.Fragment
	for _, fam := range families {
		for _, d := range []direction{ingress, egress} {
			f.AddSet(d.String()+fam.suffix, nft.Set{Map: true, Type: fam.address + " : verdict"})
		}
		f.AddSet("known"+fam.suffix, nft.Set{Type: fam.address})
		f.AddSet("self"+fam.suffix, nft.Set{Type: fam.address + " . " + fam.address})
		f.AddSet("guarded"+fam.suffix, nft.Set{Type: fam.address, Interval: true})
	}
	addBaseChains(&f)
	return f
}

func addBaseChains(f *nft.Fragment) {
	hooked := func(hook knftables.BaseChainHook, rules ...string) {
		f.AddChain("policy-"+string(hook), nft.Chain{Hook: &nft.Hook{Type: knftables.FilterType, Hook: hook, Priority: knftables.FilterPriority}, Rules: rules})
	}
	hooked(knftables.ForwardHook,
		"goto policy-forwarded")
	// Connections from the node itself are always allowed (probes), those to it are not.
	hooked(knftables.InputHook,
		`iifname "lo" accept`,
		"jump policy-neighbours",
		"ct direction reply accept",
		"goto policy-egress")
	hooked(knftables.OutputHook,
		`oifname "lo" accept`,
		"ct direction reply goto policy-egress")
	f.AddChain("policy-forwarded", nft.Chain{Rules: slices.Concat(
		[]string{"jump policy-neighbours"},
		each("CLIENT . SERVER @self accept"),
		[]string{"jump policy-egress", "goto policy-ingress"})})
	// Errors of connections, and what hosts need to find each other. Packets that belong to no connection are
	// judged by their own addresses.
	f.AddChain("policy-neighbours", nft.Chain{Rules: []string{
		"meta l4proto { icmp, ipv6-icmp } ct state related accept",
		"icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert } accept",
		"ct state invalid,untracked goto policy-untracked",
	}})
	f.AddChain("policy-egress", nft.Chain{Rules: slices.Concat(
		each("CLIENT @guarded CLIENT != @known drop"), each("CLIENT vmap @egress"))})
	f.AddChain("policy-ingress", nft.Chain{Rules: slices.Concat(
		each("SERVER @guarded SERVER != @known drop"), each("SERVER vmap @ingress"))})
	var untracked []string
	for _, end := range []string{"IP saddr", "IP daddr"} {
		untracked = slices.Concat(untracked, each(end+" @guarded "+end+" != @known drop"),
			each(end+" vmap @egress"), each(end+" vmap @ingress"))
	}
	f.AddChain("policy-untracked", nft.Chain{Rules: append(untracked, "accept")})
}

// each returns a rule for each family.
func each(rule string) []string {
	var rules []string
	for _, f := range families {
		words := strings.NewReplacer("CLIENT", f.client(), "SERVER", f.server(), "IP", f.keyword, "@guarded", "@guarded"+f.suffix,
			"@known", "@known"+f.suffix, "@self", "@self"+f.suffix, "@egress", "@egress"+f.suffix, "@ingress", "@ingress"+f.suffix)
		rules = append(rules, words.Replace(rule))
	}
	return rules
}

// hash shortens a name: those of chains and sets have at most 128 bytes.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
