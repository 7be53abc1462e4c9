// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
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
	"github.com/kindred-project/kindred/internal/network/policy/policytest"
)

// modelAllows is what the API documents (networking/v1), without sets, groups and order.
func modelAllows(all Objects, node string, c policytest.Connection) bool {
	client, server := podWith(all, c.Client), podWith(all, c.Server)
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
	return allowed(networkingv1.PolicyTypeEgress, client, server, c.Server) && allowed(networkingv1.PolicyTypeIngress, server, client, c.Client)
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

func portsAllow(ports []networkingv1.NetworkPolicyPort, server *corev1.Pod, c policytest.Connection) bool {
	for _, p := range ports {
		if ptr.Deref(p.Protocol, corev1.ProtocolTCP) != c.Protocol {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.Int:
			if from := p.Port.IntValue(); c.Port >= from && c.Port <= max(from, int(ptr.Deref(p.EndPort, 0))) {
				return true
			}
		case server != nil:
			for _, container := range server.Spec.Containers {
				for _, named := range container.Ports {
					if named.Name == p.Port.StrVal && named.Protocol == c.Protocol && int(named.ContainerPort) == c.Port {
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
		w := policytest.NewWorld(seed)
		all := Objects(w.Objects())
		fragments, errs := Compile(options, all)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		kernel := policytest.Load(fragments)
		for range 300 {
			from, to := w.IntN(policytest.Pods+1), w.IntN(policytest.Pods+1)
			c := w.Connection(from, to)
			got, want := kernel.Allows(c), modelAllows(all, "node", c)
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
		w := policytest.NewWorld(seed)
		c, have := New(options), map[string]nft.Fragment{}
		namespaces, pods, slicesOf, policies := map[string]*corev1.Namespace{}, map[string]*corev1.Pod{}, map[string]*discoveryv1.EndpointSlice{}, map[string]*networkingv1.NetworkPolicy{}
		nodes, cluster := map[string]*corev1.Node{}, map[string]*v1alpha2.ClusterNetworkPolicy{}
		// IPv6 is written as soon as the node has had one address.
		first := w.Pod(200)
		first.Spec.NodeName, first.Spec.HostNetwork, first.Status.Phase = "node", false, corev1.PodRunning
		first.Status.PodIPs = []corev1.PodIP{{IP: "fd00::200"}}
		pods["first"] = first
		c.SetPod(first)
		for step := range 80 {
			for range 1 + w.IntN(3) {
				remove := w.IntN(3) == 0
				switch w.IntN(6) {
				case 0:
					ns := w.Namespace(w.IntN(3))
					change(namespaces, ns.Name, ns, remove, c.SetNamespace, func() { c.DeleteNamespace(ns.Name) })
				case 1:
					// Pods take over each other's addresses.
					p := w.Pod(w.IntN(policytest.Pods))
					p.UID = types.UID(p.Name)
					if w.IntN(4) == 0 {
						p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
					}
					change(pods, p.Name, p, remove, c.SetPod, func() { c.DeletePod(p.Namespace, p.Name) })
				case 2:
					s := dnsSlice("10.0.0.1", 53)
					change(slicesOf, s.Name, s, remove, c.SetSlice, func() { c.DeleteSlice(s.Namespace, s.Name) })
				case 3:
					n := w.Node(w.IntN(2))
					change(nodes, n.Name, n, remove, c.SetNode, func() { c.DeleteNode(n.Name) })
				case 4:
					cnp := w.ClusterPolicy(w.IntN(4))
					set := func(cnp *v1alpha2.ClusterNetworkPolicy) { _ = c.SetClusterPolicy(cnp) }
					change(cluster, cnp.Name, cnp, remove, set, func() { c.DeleteClusterPolicy(cnp.Name) })
				default:
					np := w.Policy(w.IntN(5))
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
