// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// conn is a new connection.
type conn struct {
	client, server netip.Addr
	protocol       corev1.Protocol
	port           int
}

// kernelAllows evaluates fragments as the kernel would.
func kernelAllows(fragments map[string]nft.Fragment, c conn) bool {
	var all nft.Fragment
	for _, f := range fragments {
		all.Add(f)
	}
	if c.client == c.server && has(all, "self", c.client, c.client.String()+" . "+c.client.String()) {
		return true
	}
	return chainAllows(all, "egress", c.client, c) && chainAllows(all, "ingress", c.server, c)
}

func has(f nft.Fragment, set string, of netip.Addr, key string) bool {
	_, ok := f.Elements[nft.Element{Set: set + familyOf(of).suffix, Key: key}]
	return ok
}

func chainAllows(f nft.Fragment, direction string, isolated netip.Addr, c conn) bool {
	verdict, ok := f.Elements[nft.Element{Set: direction + familyOf(isolated).suffix, Key: isolated.String()}]
	if !ok {
		return true
	}
	return follow(f, strings.TrimPrefix(verdict, "jump "), c)
}

// follow evaluates a chain: one that ends without a verdict returns.
func follow(f nft.Fragment, name string, c conn) bool {
	chain, ok := f.Chains[name]
	if !ok {
		panic("no chain " + name)
	}
	for _, rule := range chain.Rules {
		matched, verdict := evaluate(f, rule, c)
		next, isGoto := strings.CutPrefix(verdict, "goto ")
		switch {
		case !matched:
		case isGoto:
			return follow(f, next, c)
		default:
			return verdict == "return"
		}
	}
	return true
}

// evaluate knows the few forms of rules that the compiler writes.
func evaluate(f nft.Fragment, rule string, c conn) (bool, string) {
	words := strings.Fields(rule)
	take := func() string {
		w := words[0]
		words = words[1:]
		return w
	}
	value := func() string {
		switch w := take(); {
		case w == "meta" && take() == "l4proto":
			return protocol(c.protocol)
		case w == "th":
			if take() == "dport" {
				return strconv.Itoa(c.port)
			}
			return "0"
		case w == "ct" && words[0] == "direction":
			take()
			return "original"
		case w == "ct" && words[0] == "reply" && words[1] == "proto-src":
			words = words[2:]
			return strconv.Itoa(c.port)
		case w == "ct":
			end, keyword := c.client, ""
			if take() == "reply" {
				end = c.server
			}
			if keyword = take(); take() != "saddr" || keyword != familyOf(end).keyword {
				return "no such address"
			}
			return end.String()
		}
		panic(rule)
	}
	for words[0] != "return" && words[0] != "drop" && words[0] != "goto" {
		key := value()
		for words[0] == "." {
			take()
			key += " . " + value()
		}
		if !matches(f, &words, key) {
			return false, ""
		}
	}
	return true, strings.Join(words, " ")
}

func matches(f nft.Fragment, words *[]string, key string) bool {
	first := (*words)[0]
	if first != "{" {
		*words = (*words)[1:]
		if name, isSet := strings.CutPrefix(first, "@"); isSet {
			if _, defined := f.Sets[name]; !defined {
				panic("no set " + name)
			}
			_, in := f.Elements[nft.Element{Set: name, Key: key}]
			return in
		}
		return within(first, key)
	}
	end := slices.Index(*words, "}")
	elements := (*words)[1:end]
	*words = (*words)[end+1:]
	return slices.ContainsFunc(elements, func(e string) bool { return within(strings.TrimSuffix(e, ","), key) })
}

func within(element, key string) bool {
	from, to, isRange := strings.Cut(element, "-")
	if !isRange {
		to = from
	}
	if a, err := netip.ParseAddr(key); err == nil {
		return a.Compare(netip.MustParseAddr(from)) >= 0 && a.Compare(netip.MustParseAddr(to)) <= 0
	}
	if element == key {
		return true
	}
	n, err1 := strconv.Atoi(key)
	low, err2 := strconv.Atoi(from)
	high, err3 := strconv.Atoi(to)
	return err1 == nil && err2 == nil && err3 == nil && low <= n && n <= high
}

// modelAllows is what the API documents (networking/v1), without sets, groups and order.
func modelAllows(all Objects, node string, c conn) bool {
	client, server := podWith(all, c.client), podWith(all, c.server)
	if client != nil && client == server && client.Spec.NodeName == node {
		return true
	}
	allowed := func(d networkingv1.PolicyType, isolated, remote *corev1.Pod, address netip.Addr) bool {
		if isolated == nil || isolated.Spec.NodeName != node {
			return true
		}
		if allow, final := modelTier(all, v1alpha2.AdminTier, d, isolated, remote, c); final {
			return allow
		}
		selected := false
		for _, np := range all.Policies {
			if np.Namespace != isolated.Namespace || !selects(&np.Spec.PodSelector, isolated.Labels) || !slices.Contains(typesOf(np), d) {
				continue
			}
			selected = true
			if d == networkingv1.PolicyTypeIngress {
				for _, r := range np.Spec.Ingress {
					if peersAllow(all, np.Namespace, r.From, remote, address) && portsAllow(r.Ports, server, c) {
						return true
					}
				}
			} else {
				for _, r := range np.Spec.Egress {
					if peersAllow(all, np.Namespace, r.To, remote, address) && portsAllow(r.Ports, server, c) {
						return true
					}
				}
			}
		}
		if selected {
			return false
		}
		allow, final := modelTier(all, v1alpha2.BaselineTier, d, isolated, remote, c)
		return allow || !final
	}
	return allowed(networkingv1.PolicyTypeEgress, client, server, c.server) && allowed(networkingv1.PolicyTypeIngress, server, client, c.client)
}

func typesOf(np *networkingv1.NetworkPolicy) []networkingv1.PolicyType {
	if len(np.Spec.PolicyTypes) > 0 {
		return np.Spec.PolicyTypes
	}
	if len(np.Spec.Egress) > 0 {
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
}

func selects(s *metav1.LabelSelector, of map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of))
}

func podWith(all Objects, a netip.Addr) *corev1.Pod {
	for _, p := range all.Pods {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		for _, ip := range p.Status.PodIPs {
			if netip.MustParseAddr(ip.IP) == a && !p.Spec.HostNetwork && !ended {
				return p
			}
		}
	}
	return nil
}

func peersAllow(all Objects, namespace string, peers []networkingv1.NetworkPolicyPeer, remote *corev1.Pod, address netip.Addr) bool {
	for _, p := range peers {
		if p.IPBlock != nil {
			inside := netip.MustParsePrefix(p.IPBlock.CIDR).Contains(address)
			for _, except := range p.IPBlock.Except {
				inside = inside && !netip.MustParsePrefix(except).Contains(address)
			}
			if inside {
				return true
			}
			continue
		}
		if remote == nil || p.PodSelector != nil && !selects(p.PodSelector, remote.Labels) {
			continue
		}
		if p.NamespaceSelector == nil && remote.Namespace == namespace {
			return true
		}
		for _, ns := range all.Namespaces {
			if ns.Name == remote.Namespace && p.NamespaceSelector != nil && selects(p.NamespaceSelector, ns.Labels) {
				return true
			}
		}
	}
	return len(peers) == 0
}

func portsAllow(ports []networkingv1.NetworkPolicyPort, server *corev1.Pod, c conn) bool {
	for _, p := range ports {
		if ptr.Deref(p.Protocol, corev1.ProtocolTCP) != c.protocol {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.Int:
			if from := p.Port.IntValue(); c.port >= from && c.port <= max(from, int(ptr.Deref(p.EndPort, 0))) {
				return true
			}
		case server != nil:
			for _, container := range server.Spec.Containers {
				for _, named := range container.Ports {
					if named.Name == p.Port.StrVal && named.Protocol == c.protocol && int(named.ContainerPort) == c.port {
						return true
					}
				}
			}
		}
	}
	return len(ports) == 0
}

var options = Options{Node: "node", PodRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}

func TestFragmentsAllowWhatTheAPIDocuments(t *testing.T) {
	allowed, denied := 0, 0
	for seed := range uint64(400) {
		w := newWorld(seed)
		all := w.objects()
		fragments, errs := Compile(options, all)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for range 300 {
			from, to := w.IntN(podsOfWorld+1), w.IntN(podsOfWorld+1)
			c := w.connection(from, to)
			got, want := kernelAllows(fragments, c), modelAllows(all, "node", c)
			if got != want {
				t.Fatalf("seed %d, %v: got %t, want %t", seed, c, got, want)
			}
			if want {
				allowed++
			} else {
				denied++
			}
		}
	}
	if allowed < 1000 || denied < 1000 {
		t.Errorf("only %d allowed and %d denied", allowed, denied)
	}
}

// After any sequence of changes, the fragments are those of the objects that are left.
func TestChangesLeadToTheSameFragments(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(seed)
		c, have := New(options), map[string]nft.Fragment{}
		namespaces, pods, slicesOf, policies := map[string]*corev1.Namespace{}, map[string]*corev1.Pod{}, map[string]*discoveryv1.EndpointSlice{}, map[string]*networkingv1.NetworkPolicy{}
		nodes, cluster := map[string]*corev1.Node{}, map[string]*v1alpha2.ClusterNetworkPolicy{}
		// IPv6 is written as soon as the node has had one address.
		first := w.pod(200)
		first.Spec.NodeName, first.Spec.HostNetwork, first.Status.Phase = "node", false, corev1.PodRunning
		first.Status.PodIPs = []corev1.PodIP{{IP: "fd00::200"}}
		pods["first"] = first
		c.SetPod(first)
		for step := range 80 {
			for range 1 + w.IntN(3) {
				remove := w.IntN(3) == 0
				switch w.IntN(6) {
				case 0:
					ns := w.namespace(w.IntN(3))
					change(namespaces, ns.Name, ns, remove, c.SetNamespace, func() { c.DeleteNamespace(ns.Name) })
				case 1:
					// Pods take over each other's addresses.
					p := w.pod(w.IntN(podsOfWorld))
					p.UID = types.UID(p.Name)
					if w.IntN(4) == 0 {
						p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
					}
					change(pods, p.Name, p, remove, c.SetPod, func() { c.DeletePod(p.Namespace, p.Name) })
				case 2:
					s := dnsSlice("10.0.0.1", 53)
					change(slicesOf, s.Name, s, remove, c.SetSlice, func() { c.DeleteSlice(s.Namespace, s.Name) })
				case 3:
					n := w.node(w.IntN(2))
					change(nodes, n.Name, n, remove, c.SetNode, func() { c.DeleteNode(n.Name) })
				case 4:
					cnp := w.clusterPolicy(w.IntN(4))
					set := func(cnp *v1alpha2.ClusterNetworkPolicy) { _ = c.SetClusterPolicy(cnp) }
					change(cluster, cnp.Name, cnp, remove, set, func() { c.DeleteClusterPolicy(cnp.Name) })
				default:
					np := w.policy(w.IntN(5))
					np.Namespace = "n" + np.Name[2:]
					set := func(np *networkingv1.NetworkPolicy) {
						if err := c.SetPolicy(np); err != nil {
							t.Fatal(err)
						}
					}
					change(policies, np.Name, np, remove, set, func() { c.DeletePolicy(np.Namespace, np.Name) })
				}
			}
			for source, f := range c.Changes() {
				have[source] = f
				if len(f.Chains)+len(f.Elements)+len(f.Sets) == 0 {
					delete(have, source)
				}
			}
			want, _ := Compile(options, Objects{
				Namespaces: slices.Collect(maps.Values(namespaces)), Pods: slices.Collect(maps.Values(pods)), Slices: slices.Collect(maps.Values(slicesOf)),
				Policies: slices.Collect(maps.Values(policies)), Nodes: slices.Collect(maps.Values(nodes)), Cluster: slices.Collect(maps.Values(cluster)),
			})
			maps.DeleteFunc(want, func(_ string, f nft.Fragment) bool { return len(f.Chains)+len(f.Elements)+len(f.Sets) == 0 })
			if !reflect.DeepEqual(have, want) {
				t.Fatalf("seed %d, step %d: got\n%v, want\n%v", seed, step, have, want)
			}
		}
	}
}

func change[T any](all map[string]T, key string, object T, remove bool, set func(T), unset func()) {
	if remove {
		delete(all, key)
		unset()
		return
	}
	all[key] = object
	set(object)
}

func dnsSlice(address string, port int32) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns", Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns"}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP), Port: &port}},
	}
}
