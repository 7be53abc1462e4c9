// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/internal/network/policy/policytest"
)

// text prints fragments in a form for people.
func text(fragments map[string]nft.Fragment) string {
	var all nft.Fragment
	for _, f := range fragments {
		all.Add(f)
	}
	var lines []string
	for name, c := range all.Chains {
		lines = append(lines, "chain "+name+":\n  "+strings.Join(c.Rules, "\n  "))
	}
	for name, s := range all.Sets {
		lines = append(lines, "set "+name+" "+s.Type)
	}
	for e, value := range all.Elements {
		lines = append(lines, strings.TrimSpace("element "+e.Set+" "+e.Key+" "+value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// The policy of the Kubernetes documentation, on a pod with a named port.
func TestGolden(t *testing.T) {
	db := (&host{name: "db", v4: "10.0.0.3"}).pod("default", corev1.ContainerPort{Name: "sql", ContainerPort: 5432, Protocol: corev1.ProtocolTCP})
	front := (&host{name: "front", v4: "10.0.0.4"}).pod("default")
	front.Spec.NodeName = "other"
	policy := np("db", "db", networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{
			{IPBlock: &networkingv1.IPBlock{CIDR: "172.17.0.0/16", Except: []string{"172.17.1.0/24"}}},
			{PodSelector: label("pod", "front")},
		},
		Ports: slices.Concat(numbered(corev1.ProtocolTCP, intstr.FromInt32(6379)), numbered(corev1.ProtocolTCP, intstr.FromString("sql"))),
	}}
	policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{
		{Port: ptr.To(intstr.FromInt32(32000)), EndPort: ptr.To[int32](32768)}, {Protocol: ptr.To(corev1.ProtocolUDP)},
	}}}
	got, errs := Compile(options, Objects{Pods: []*corev1.Pod{db, front}, Policies: []*networkingv1.NetworkPolicy{policy}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	const want = `chain policy-egress4-EGRESS:
  meta l4proto tcp ct reply proto-src 32000-32768 return
  meta l4proto udp return
  drop
chain policy-ingress4-INGRESS:
  ct original ip saddr @peers4-FRONT meta l4proto tcp ct reply proto-src { 5432, 6379 } return
  ct original ip saddr { 172.17.0.0-172.17.0.255, 172.17.2.0-172.17.255.255 } meta l4proto tcp ct reply proto-src { 5432, 6379 } return
  drop
element egress4 10.0.0.3 jump policy-egress4-EGRESS
element guarded4 10.0.0.0/24
element ingress4 10.0.0.3 jump policy-ingress4-INGRESS
element known4 10.0.0.3
element peers4-FRONT 10.0.0.4
element self4 10.0.0.3 . 10.0.0.3
set peers4-FRONT ipv4_addr
`
	names := strings.NewReplacer("EGRESS", "2de47b72b4b49e94", "INGRESS", "64822a44de6ec765", "FRONT", "7bcce0b24c29b421")
	if diff := cmp.Diff(names.Replace(want), text(got)); diff != "" {
		t.Error(diff)
	}
}

func TestBlockSpans(t *testing.T) {
	for _, test := range []struct {
		block networkingv1.IPBlock
		want  string
	}{
		{networkingv1.IPBlock{CIDR: "10.0.0.0/30"}, "10.0.0.0-10.0.0.3"},
		{networkingv1.IPBlock{CIDR: "10.0.0.1/32"}, "10.0.0.1"},
		{networkingv1.IPBlock{CIDR: "10.0.0.7/30"}, "10.0.0.4-10.0.0.7"},
		{networkingv1.IPBlock{CIDR: "0.0.0.0/0"}, "0.0.0.0-255.255.255.255"},
		{networkingv1.IPBlock{CIDR: "10.0.0.0/24", Except: []string{"10.0.0.0/25", "10.0.0.255/32"}}, "10.0.0.128-10.0.0.254"},
		{networkingv1.IPBlock{CIDR: "10.0.0.0/24", Except: []string{"10.0.0.64/26", "10.0.0.64/27"}}, "{ 10.0.0.0-10.0.0.63, 10.0.0.128-10.0.0.255 }"},
		{networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"0.0.0.0/1", "128.0.0.0/1"}}, ""},
	} {
		spans, err := blockSpans(test.block)
		if err != nil {
			t.Fatal(err)
		}
		if got := ipv4.elements(merge(spans)); got != test.want {
			t.Errorf("%v: got %s, want %s", test.block, got, test.want)
		}
	}
}

func TestMergeIsSortedWithoutOverlaps(t *testing.T) {
	var spans []span
	for _, cidr := range []string{"255.0.0.0/8", "10.0.1.0/24", "10.0.0.0/24", "10.0.0.128/25", "255.255.0.0/16", "::/1", "10.0.3.0/24"} {
		spans = append(spans, prefixSpan(netip.MustParsePrefix(cidr)))
	}
	spans = merge(spans)
	if got, want := ipv4.elements(spans), "{ 10.0.0.0-10.0.1.255, 10.0.3.0-10.0.3.255, 255.0.0.0-255.255.255.255 }"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := ipv6.elements(spans), "::-7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A new pod has the address of an old one that the API still shows as running.
func TestAddressOfNewestPod(t *testing.T) {
	old := (&host{name: "old", v4: "10.0.0.1"}).pod("default")
	replacement := (&host{name: "new", v4: "10.0.0.1"}).pod("default")
	replacement.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	isolating := func(c *Compiler) (pods []string) {
		for _, g := range c.groups {
			for p := range g.pods {
				pods = append(pods, p.key)
			}
		}
		return pods
	}
	for _, order := range [][]*corev1.Pod{{old, replacement}, {replacement, old}} {
		c := New(options)
		must(t, c.SetPolicy(np("old", "old", networkingv1.PolicyTypeIngress)))
		for _, p := range order {
			c.SetPod(p)
		}
		if got := isolating(c); len(got) != 0 {
			t.Errorf("isolated %v", got)
		}
		c.DeletePod("default", "new")
		if got := isolating(c); !slices.Equal(got, []string{"pod default/old"}) {
			t.Errorf("isolated %v after the deletion", got)
		}
	}
}

func TestInvalidPolicy(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	c := New(options)
	c.SetPod((&host{name: "a", v4: "10.0.0.1"}).pod("default"))
	policy := np("p", "a")
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: bad}, {IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0"}}}}}
	err := c.SetPolicy(policy)
	if err == nil || !strings.Contains(err.Error(), "spec.ingress[0]: ") || !strings.Contains(err.Error(), `"10.0.0.0"`) {
		t.Errorf("error %v", err)
	}
	if policytest.Load(c.Changes()).Allows(policytest.Connection{Client: netip.MustParseAddr("10.0.0.0"), Server: netip.MustParseAddr("10.0.0.1"), Protocol: corev1.ProtocolTCP, Port: 80}) {
		t.Error("a rule without a valid peer allows a connection")
	}
	policy = policy.DeepCopy()
	policy.Spec.PodSelector = *bad
	if err := c.SetPolicy(policy); err == nil || !strings.Contains(err.Error(), "spec.podSelector: ") {
		t.Errorf("error %v", err)
	}
}

func TestGate(t *testing.T) {
	g, a := NewGate(), netip.MustParseAddr("10.0.0.1")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { done <- g.Wait(ctx, Member{"new", a}) }()
	g.Set([]Member{{"old", a}, {"new", netip.MustParseAddr("10.0.0.2")}}, false)
	g.Set([]Member{{"new", a}}, false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	g.Set(nil, false)
	stopped := errors.New("stopped")
	cancel(stopped)
	if err := g.Wait(ctx, Member{"new", a}); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
}

// TestGateWithoutPolicies: pods do not wait as long as there are no policies.
func TestGateWithoutPolicies(t *testing.T) {
	g := NewGate()
	passes := func() bool {
		passes, _ := g.passes(Member{"pod", netip.MustParseAddr("10.0.0.1")})
		return passes
	}
	if passes() {
		t.Error("open before the first write")
	}
	g.Set(nil, true)
	if !passes() {
		t.Error("closed without policies")
	}
	g.Close()
	if passes() {
		t.Error("open after Close")
	}
}

// large has 1,000 policies and 500 pods in 50 namespaces. Some of the pods are on this node.
func large(local int) Objects {
	var all Objects
	for n := range 50 {
		name := fmt.Sprint("n", n)
		all.Namespaces = append(all.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": fmt.Sprint(n % 10)}}})
		for i := range 10 {
			p := (&host{name: fmt.Sprintf("%d-%d", n, i), v4: fmt.Sprintf("10.0.%d.%d", n, i+1)}).pod(name)
			if len(all.Pods) >= local {
				p.Spec.NodeName = "other"
			}
			p.UID, p.Labels = types.UID(p.Name), map[string]string{"app": fmt.Sprint(i), "tier": fmt.Sprint(i % 3)}
			all.Pods = append(all.Pods, p)
		}
		for i := range 20 {
			policy := np(fmt.Sprint("np", i), "")
			policy.Namespace, policy.Spec.PodSelector = name, *label("app", fmt.Sprint(i%10))
			policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
				From:  []networkingv1.NetworkPolicyPeer{{PodSelector: label("tier", fmt.Sprint(i%3))}, {NamespaceSelector: label("team", fmt.Sprint(i%10)), PodSelector: label("app", fmt.Sprint(i%7))}},
				Ports: numbered(corev1.ProtocolTCP, intstr.FromInt32(int32(8000+i))),
			}}
			policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("172.16.%d.0/24", i)}}}}}
			all.Policies = append(all.Policies, policy)
		}
	}
	return all
}

func BenchmarkCompile(b *testing.B) {
	all := large(500)
	for b.Loop() {
		Compile(options, all)
	}
}

// BenchmarkChange changes a policy and a pod, without the kernel.
func BenchmarkChange(b *testing.B) {
	all := large(500)
	c := New(options)
	if errs := c.set(all); len(errs) > 0 {
		b.Fatal(errs)
	}
	c.Changes()
	for i := 0; b.Loop(); i++ {
		np := all.Policies[i%len(all.Policies)].DeepCopy()
		np.Spec.Ingress[0].From[0].PodSelector.MatchLabels["tier"] = fmt.Sprint(i)
		if err := c.SetPolicy(np); err != nil {
			b.Fatal(err)
		}
		p := all.Pods[i%len(all.Pods)].DeepCopy()
		p.Labels["app"] = fmt.Sprint(i % 11)
		c.SetPod(p)
		maps.DeleteFunc(c.Changes(), func(string, nft.Fragment) bool { return true })
	}
}
