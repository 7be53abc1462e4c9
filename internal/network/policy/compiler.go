// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// Options configure a Compiler.
type Options struct {
	// Node is the name of the node whose pods are isolated.
	Node string
	// PodRanges are the addresses that pods of the node get.
	PodRanges []netip.Prefix
}

// Objects are all objects that policies depend on.
type Objects struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Slices     []*discoveryv1.EndpointSlice
	Policies   []*networkingv1.NetworkPolicy
	// Nodes and Cluster are empty if ClusterNetworkPolicies are not applied.
	Nodes   []*corev1.Node
	Cluster []*v1alpha2.ClusterNetworkPolicy
}

// Compile returns the fragments of all objects, by their source. Errors are those of [Compiler.SetPolicy].
func Compile(o Options, all Objects) (map[string]nft.Fragment, []error) {
	c := New(o)
	errs := c.set(all)
	return c.Changes(), errs
}

// set adds or changes objects.
func (c *Compiler) set(all Objects) (errs []error) {
	for _, ns := range all.Namespaces {
		c.SetNamespace(ns)
	}
	for _, p := range all.Pods {
		c.SetPod(p)
	}
	for _, s := range all.Slices {
		c.SetSlice(s)
	}
	for _, p := range all.Policies {
		if err := c.SetPolicy(p); err != nil {
			errs = append(errs, err)
		}
	}
	for _, n := range all.Nodes {
		c.SetNode(n)
	}
	for _, p := range all.Cluster {
		if err := c.SetClusterPolicy(p); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Compiler has the objects, and knows which fragments changed. It is not safe for concurrent use.
type Compiler struct {
	options    Options
	namespaces map[string]labels.Set
	pods       map[string]*pod
	// inNamespace has the pods of each namespace, claimants those of each address.
	inNamespace map[string]map[*pod]struct{}
	claimants   map[netip.Addr]map[*pod]struct{}
	policies    map[string]*policy
	// policiesIn has the keys of the policies of each namespace, and under clusterWide those of ClusterNetworkPolicies.
	policiesIn map[string]map[string]struct{}
	sets       map[string]*set
	groups     map[string]*group
	// hasIPv6 is set as soon as a pod of the node has an IPv6 address.
	hasIPv6 bool
	dirty   dirty
}

// dirty has what changed since the last call of Changes.
type dirty struct {
	sets   map[*set]struct{}
	groups map[*group]struct{}
	pods   map[string]struct{}
	guard  bool
}

// set has the pods that a peer selects.
type set struct {
	peer
	// users counts the rules that name the peer.
	users int
	pods  map[*pod]struct{}
}

// group has the pods of the node that the same policies isolate in a direction.
type group struct {
	name      string
	direction direction
	policies  []string
	// numbers are the named ports of the pods, as far as the policies use them. They are the same for all.
	numbers map[namedPort][]string
	pods    map[*pod]struct{}
	// refused is set if the kernel did not accept the chain: all packets are dropped.
	refused bool
}

// New returns a Compiler without objects.
func New(o Options) *Compiler {
	return &Compiler{
		options:     o,
		namespaces:  map[string]labels.Set{},
		pods:        map[string]*pod{},
		inNamespace: map[string]map[*pod]struct{}{},
		claimants:   map[netip.Addr]map[*pod]struct{}{},
		policies:    map[string]*policy{},
		policiesIn:  map[string]map[string]struct{}{},
		sets:        map[string]*set{},
		groups:      map[string]*group{},
		dirty:       dirty{sets: map[*set]struct{}{}, groups: map[*group]struct{}{}, pods: map[string]struct{}{}},
	}
}

// SetNamespace adds or changes a namespace.
func (c *Compiler) SetNamespace(ns *corev1.Namespace) { c.relabel(ns.Name, ns.Labels) }

// DeleteNamespace removes a namespace.
func (c *Compiler) DeleteNamespace(name string) { c.relabel(name, nil) }

func (c *Compiler) relabel(name string, now labels.Set) {
	old := c.namespaces[name]
	if now == nil {
		delete(c.namespaces, name)
	} else {
		c.namespaces[name] = now
	}
	if maps.Equal(old, now) {
		return
	}
	for _, s := range c.sets {
		if s.nodes != nil || s.matchesNamespace(name, old) == s.matchesNamespace(name, now) {
			continue
		}
		for p := range c.inNamespace[name] {
			c.place(s, p)
		}
	}
	for p := range c.inNamespace[name] {
		c.reselect(p)
	}
}

// reselect applies the ClusterNetworkPolicies to a pod whose namespace has changed its labels.
func (c *Compiler) reselect(p *pod) {
	if !p.local {
		return
	}
	var changed [directions]bool
	for key := range c.policiesIn[clusterWide] {
		for d, now := range c.selects(key, p) {
			changed[d] = changed[d] || now
		}
	}
	for d := range directions {
		if changed[d] {
			c.regroup(p, d)
		}
	}
}

// SetPod adds or changes a pod.
func (c *Compiler) SetPod(p *corev1.Pod) {
	c.setPod(podKey(p.Namespace, p.Name), podOf(p, c.options.Node))
}

// DeletePod removes a pod.
func (c *Compiler) DeletePod(namespace, name string) { c.setPod(podKey(namespace, name), nil) }

// SetSlice adds or changes an EndpointSlice. Only those of the DNS Service matter.
func (c *Compiler) SetSlice(s *discoveryv1.EndpointSlice) {
	c.setPod(sliceKey(s.Namespace, s.Name), dnsOf(s))
}

// DeleteSlice removes an EndpointSlice.
func (c *Compiler) DeleteSlice(namespace, name string) { c.setPod(sliceKey(namespace, name), nil) }

// SetNode adds or changes a node, which ClusterNetworkPolicies may name as a destination.
func (c *Compiler) SetNode(n *corev1.Node) { c.setPod(nodeKey(n.Name), nodeOf(n)) }

// DeleteNode removes a node.
func (c *Compiler) DeleteNode(name string) { c.setPod(nodeKey(name), nil) }

func (c *Compiler) setPod(key string, now *pod) {
	old := c.pods[key]
	if old == nil && now == nil || old != nil && now != nil && old.same(now) {
		return
	}
	c.dirty.pods[key] = struct{}{}
	if old != nil {
		c.remove(old)
	}
	if now != nil {
		c.add(now)
	}
}

func (c *Compiler) remove(p *pod) {
	for s := range p.sets {
		delete(s.pods, p)
		c.dirty.sets[s] = struct{}{}
	}
	for d := range directions {
		c.leave(p, d)
	}
	delete(c.pods, p.key)
	discard(c.inNamespace, p.namespace, p)
	for _, a := range p.claimed {
		discard(c.claimants, a, p)
		c.assign(a)
	}
}

func (c *Compiler) add(p *pod) {
	c.pods[p.key] = p
	insert(c.inNamespace, p.namespace, p)
	for _, s := range c.sets {
		c.place(s, p)
	}
	if p.local {
		for _, of := range []string{p.namespace, clusterWide} {
			for key := range c.policiesIn[of] {
				c.selects(key, p)
			}
		}
	}
	for _, a := range p.claimed {
		insert(c.claimants, a, p)
		c.hasSeen(a, p)
		c.assign(a)
	}
}

// hasSeen begins with IPv6 when the first pod of the node has such an address.
func (c *Compiler) hasSeen(a netip.Addr, of *pod) {
	if c.hasIPv6 || !of.local || a.Is4() {
		return
	}
	c.hasIPv6 = true
	for _, s := range c.sets {
		c.dirty.sets[s] = struct{}{}
	}
}

// assign gives an address to the newest pod that claims it.
func (c *Compiler) assign(a netip.Addr) {
	var newest *pod
	for p := range c.claimants[a] {
		if newest == nil || p.newer(newest) {
			newest = p
		}
	}
	for p := range c.claimants[a] {
		has := slices.Contains(p.addresses, a)
		switch {
		case p == newest && !has:
			p.addresses = append(p.addresses, a)
			c.readdressed(p)
		case p != newest && has:
			p.addresses = slices.DeleteFunc(p.addresses, func(b netip.Addr) bool { return a == b })
			c.readdressed(p)
		}
	}
}

func (c *Compiler) readdressed(p *pod) {
	c.dirty.pods[p.key] = struct{}{}
	for s := range p.sets {
		c.dirty.sets[s] = struct{}{}
	}
	for d := range directions {
		c.regroup(p, d)
	}
}

// SetPolicy adds or changes a policy. If a part of it is invalid, it returns an error, and the part allows nothing.
func (c *Compiler) SetPolicy(np *networkingv1.NetworkPolicy) error {
	key := policyKey(np.Namespace, np.Name)
	if old := c.policies[key]; old != nil && equality.Semantic.DeepEqual(old.spec, any(np.Spec)) {
		return nil
	}
	now, err := parse(np)
	c.setPolicy(key, np.Namespace, now)
	return err
}

// DeletePolicy removes a policy.
func (c *Compiler) DeletePolicy(namespace, name string) {
	c.setPolicy(policyKey(namespace, name), namespace, nil)
}

func policyKey(namespace, name string) string { return namespace + "/" + name }

// setPolicy adds, changes or removes a policy of a namespace, or of clusterWide.
func (c *Compiler) setPolicy(key, namespace string, now *policy) {
	old := c.policies[key]
	c.dirty.guard = true
	if now == nil {
		delete(c.policies, key)
		discard(c.policiesIn, namespace, key)
	} else {
		c.policies[key] = now
		insert(c.policiesIn, namespace, key)
		for _, p := range now.all() {
			c.use(p)
		}
	}
	if old != nil {
		for _, p := range old.all() {
			c.release(p)
		}
	}
	named := old != nil && len(old.names()) > 0 || now != nil && len(now.names()) > 0
	for p := range c.subjects(namespace) {
		changed := c.selects(key, p)
		for d := range directions {
			if changed[d] || named && d == ingress {
				c.regroup(p, d)
			}
			if g := p.groups[d]; g != nil && slices.Contains(g.policies, key) {
				c.touch(g)
			}
		}
	}
}

// subjects returns the pods of the node that a policy of a namespace, or of clusterWide, may isolate.
func (c *Compiler) subjects(namespace string) iter.Seq[*pod] {
	all := maps.Keys(c.inNamespace[namespace])
	if namespace == clusterWide {
		all = maps.Values(c.pods)
	}
	return func(yield func(*pod) bool) {
		for p := range all {
			if p.local && !yield(p) {
				return
			}
		}
	}
}

// selects records whether a policy isolates a pod. It returns the directions in which that changed.
func (c *Compiler) selects(key string, p *pod) (changed [directions]bool) {
	by := c.policies[key]
	selected := by != nil && by.subject.selects(p, c.namespaces[p.namespace])
	for d := range directions {
		_, was := p.selectedBy[d][key]
		is := selected && by.isolates[d]
		changed[d] = is != was
		if is {
			p.selectedBy[d][key] = struct{}{}
		} else {
			delete(p.selectedBy[d], key)
		}
	}
	return changed
}

func (c *Compiler) touch(g *group) {
	g.refused = false
	c.dirty.groups[g] = struct{}{}
}

// use adds the set of a peer, unless another rule has.
func (c *Compiler) use(p peer) {
	id := p.id()
	s := c.sets[id]
	if s == nil {
		s = &set{peer: p, pods: map[*pod]struct{}{}}
		c.sets[id] = s
		c.dirty.sets[s] = struct{}{}
		for _, candidate := range c.candidates(p) {
			c.place(s, candidate)
		}
	}
	s.users++
}

func (c *Compiler) release(p peer) {
	id := p.id()
	s := c.sets[id]
	if s.users--; s.users > 0 {
		return
	}
	delete(c.sets, id)
	c.dirty.sets[s] = struct{}{}
	for member := range s.pods {
		delete(member.sets, s)
	}
}

func (c *Compiler) candidates(p peer) []*pod {
	if p.nodes == nil && p.namespaces == nil {
		return slices.Collect(maps.Keys(c.inNamespace[p.namespace]))
	}
	return slices.Collect(maps.Values(c.pods))
}

// place puts a pod into a set, or takes it out.
func (c *Compiler) place(s *set, p *pod) {
	_, was := s.pods[p]
	is := s.selects(p, c.namespaces[p.namespace])
	if is == was {
		return
	}
	c.dirty.sets[s] = struct{}{}
	if is {
		s.pods[p], p.sets[s] = struct{}{}, struct{}{}
	} else {
		delete(s.pods, p)
		delete(p.sets, s)
	}
}

func insert[K, V comparable](in map[K]map[V]struct{}, key K, value V) {
	if in[key] == nil {
		in[key] = map[V]struct{}{}
	}
	in[key][value] = struct{}{}
}

func discard[K, V comparable](in map[K]map[V]struct{}, key K, value V) {
	delete(in[key], value)
	if len(in[key]) == 0 {
		delete(in, key)
	}
}
