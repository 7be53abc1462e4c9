// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/internal/network/policy/policytest"
	"github.com/kindred-project/kindred/test/netns"
)

const (
	toPods   = networkingv1.PolicyTypeIngress
	fromPods = networkingv1.PolicyTypeEgress
)

func TestIngress(t *testing.T) {
	m := newMachine(t)
	a, b, web := m.connect("a"), m.connect("b"), m.connect("web")
	web.Echo(t, 80, 81, 82)
	for _, h := range []*host{a, b, web} {
		m.compiler.SetPod(h.pod("default", corev1.ContainerPort{Name: "http", ContainerPort: 82, Protocol: corev1.ProtocolTCP}))
	}
	m.write()
	for _, to := range []string{web.v4, web.v6} {
		a.expect(t, true, to, 80, "tcp", "udp")
	}

	m.apply(np("deny", "web", toPods))
	for _, to := range []string{web.v4, web.v6} {
		a.expect(t, false, to, 80, "tcp", "udp")
		node.expect(t, true, to, 80, "tcp", "udp")
	}

	allow := np("allow", "web", toPods)
	allow.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{{PodSelector: label("pod", "a")}}, Ports: numbered(corev1.ProtocolTCP, intstr.FromInt32(80))},
		{From: []networkingv1.NetworkPolicyPeer{{PodSelector: label("pod", "b")}}, Ports: numbered(corev1.ProtocolTCP, intstr.FromString("http"))},
	}
	m.apply(allow)
	a.expectOf(t, web, []string{"tcp/80"}, []string{"udp/80", "tcp/81", "tcp/82"})
	b.expectOf(t, web, []string{"tcp/82"}, []string{"tcp/80"})

	m.compiler.DeletePolicy("default", "deny")
	m.compiler.DeletePolicy("default", "allow")
	m.write()
	b.expect(t, true, web.v4, 81, "tcp", "udp")
}

func TestEgress(t *testing.T) {
	m := newMachine(t)
	a, web := m.connect("a"), m.connect("web")
	web.Echo(t, 80, 82)
	node.Echo(t, 53)
	m.compiler.SetPod(a.pod("default"))
	m.compiler.SetPod(web.pod("default", corev1.ContainerPort{Name: "http", ContainerPort: 82, Protocol: corev1.ProtocolTCP}))
	m.compiler.SetSlice(dnsSlice(gateway, 53))
	m.compiler.SetNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", Labels: map[string]string{"kubernetes.io/metadata.name": "kube-system"}}})
	m.apply(np("deny", "a", fromPods))
	a.expect(t, false, web.v4, 82, "tcp", "udp")
	a.expect(t, false, web.v6, 82, "tcp")
	a.expect(t, false, gateway, 53, "tcp", "udp")
	web.expect(t, true, gateway, 53, "tcp", "udp")

	allow := np("allow", "a", fromPods)
	allow.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{
		{To: []networkingv1.NetworkPolicyPeer{{PodSelector: label("pod", "web")}}, Ports: numbered(corev1.ProtocolTCP, intstr.FromString("http"))},
		{
			To:    []networkingv1.NetworkPolicyPeer{{NamespaceSelector: label("kubernetes.io/metadata.name", "kube-system"), PodSelector: label("k8s-app", "kube-dns")}},
			Ports: numbered(corev1.ProtocolUDP, intstr.FromInt32(53)),
		},
	}
	m.apply(allow)
	a.expectOf(t, web, []string{"tcp/82"}, []string{"udp/82", "tcp/80"})
	a.expect(t, true, gateway, 53, "udp")
	a.expect(t, false, gateway, 53, "tcp")
}

// A Service's translation comes before egress, its masquerading after ingress. A pod always reaches itself.
func TestTranslatedAddresses(t *testing.T) {
	m := newMachine(t)
	a, web := m.connect("a"), m.connect("web")
	web.Echo(t, 80)
	m.compiler.SetPod(a.pod("default"))
	m.compiler.SetPod(web.pod("default"))
	m.write()
	otherTable(t, `
		chain prerouting { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 tcp dport 8000 dnat ip to 10.0.0.3:80; }
		chain postrouting { type nat hook postrouting priority srcnat; ct original ip daddr 10.96.0.1 masquerade; }`)
	const service = "10.96.0.1"
	a.expect(t, true, service, 8000, "tcp")

	m.apply(np("all", "web", toPods, fromPods), np("a", "a", fromPods))
	a.expect(t, false, service, 8000, "tcp")
	web.expect(t, true, service, 8000, "tcp")

	toWeb, fromA := np("a", "a", fromPods), np("all", "web", toPods, fromPods)
	toWeb.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: label("pod", "web")}}, Ports: numbered(corev1.ProtocolTCP, intstr.FromInt32(80))}}
	fromA.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: label("pod", "a")}}, Ports: numbered(corev1.ProtocolTCP, intstr.FromInt32(80))}}
	m.apply(toWeb)
	a.expect(t, false, service, 8000, "tcp")
	m.apply(fromA)
	a.expect(t, true, service, 8000, "tcp")
}

// otherTable adds a table beside that of the test.
func otherTable(t *testing.T, chains string) {
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader("table inet other {" + chains + "\n}")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { must(t, exec.Command("nft", "delete table inet other").Run()) })
}

// Rules of somebody else may exempt packets from connection tracking, but not from policies.
func TestUntrackedPackets(t *testing.T) {
	m := newMachine(t)
	a, web := m.connect("a"), m.connect("web")
	web.Echo(t, 80)
	m.compiler.SetPod(a.pod("default"))
	m.compiler.SetPod(web.pod("default"))
	m.write()
	otherTable(t, "\nchain prerouting { type filter hook prerouting priority raw; udp dport 80 notrack; udp sport 80 notrack; }")
	a.expect(t, true, web.v4, 80, "udp")
	m.apply(np("deny", "web", toPods))
	a.expect(t, false, web.v4, 80, "udp")
}

// A server that sends without being asked is cut off as well.
func TestPushingServerIsCut(t *testing.T) {
	m := newMachine(t)
	a, web := m.connect("a"), m.connect("web")
	m.compiler.SetPod(a.pod("default"))
	m.compiler.SetPod(web.pod("default"))
	m.write()
	for _, server := range []*host{web, node} {
		var l, client net.PacketConn
		var err error
		server.Do(t, func() { l, err = net.ListenPacket("udp", ":91") })
		must(t, err)
		defer l.Close()
		a.Do(t, func() { client, err = net.ListenPacket("udp", a.v4+":0") })
		must(t, err)
		defer client.Close()
		to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server.v4 + ":91"))
		_, err = client.WriteTo([]byte("subscribe"), to)
		must(t, err)
		b := make([]byte, 100)
		_, from, err := l.ReadFrom(b)
		must(t, err)
		pushed := func() bool {
			_, err := l.WriteTo([]byte("push"), from)
			must(t, client.SetReadDeadline(time.Now().Add(patience)))
			_, _, readErr := client.ReadFrom(b)
			return err == nil && readErr == nil
		}
		if !pushed() {
			t.Errorf("%s: nothing before the policy", server.v4)
		}
		m.apply(np("deny", "a", fromPods))
		if pushed() {
			t.Errorf("%s: pushes although a policy forbids the connection", server.v4)
		}
		_, err = client.WriteTo([]byte("forbidden"), to)
		must(t, err)
		must(t, l.SetReadDeadline(time.Now().Add(patience)))
		if n, _, err := l.ReadFrom(b); err == nil {
			t.Errorf("%s: got %s although a policy forbids the connection", server.v4, b[:n])
		}
		m.compiler.DeletePolicy("default", "deny")
		m.write()
		if !pushed() {
			t.Errorf("%s: nothing after the policy", server.v4)
		}
	}
}

func TestEstablishedConnectionsAreCut(t *testing.T) {
	m := newMachine(t)
	a, web := m.connect("a"), m.connect("web")
	web.Echo(t, 80)
	node.Echo(t, 90)
	m.compiler.SetPod(a.pod("default"))
	m.compiler.SetPod(web.pod("default"))
	m.write()
	dial := func(to string, port string) net.Conn {
		c, err := a.Dial(t, "tcp", net.JoinHostPort(to, port), patience)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	toWeb, toNode := dial(web.v4, "80"), dial(gateway, "90")
	for _, c := range []net.Conn{toWeb, toNode} {
		if !answers(c, "before", longPatience) {
			t.Fatal("no answer before the policy")
		}
	}
	m.apply(np("deny", "a", fromPods))
	for _, c := range []net.Conn{toWeb, toNode} {
		if answers(c, "during", patience) {
			t.Errorf("%s: answer although a policy forbids it", c.RemoteAddr())
		}
	}
	m.compiler.DeletePolicy("default", "deny")
	m.apply(np("deny", "web", toPods))
	if again := dial(gateway, "90"); !answers(again, "again", longPatience) {
		t.Error("no answer of the node after the policy")
	}
	if answers(toWeb, "still", patience) {
		t.Error("answer although the server's policy forbids it")
	}
}

// Packets of a pod that is not known yet are dropped if there is any policy.
func TestUnknownPod(t *testing.T) {
	m := newMachine(t)
	a, web := m.connect("a"), m.connect("web")
	web.Echo(t, 80)
	a.Echo(t, 80)
	m.compiler.SetPod(web.pod("default"))
	m.write()
	a.expect(t, true, web.v4, 80, "tcp", "udp")
	m.apply(np("elsewhere", "no-such-pod", toPods))
	a.expect(t, false, web.v4, 80, "tcp", "udp")
	web.expect(t, false, a.v4, 80, "tcp", "udp")
	node.expect(t, true, a.v4, 80, "tcp", "udp")
	m.compiler.SetPod(a.pod("default"))
	m.write()
	a.expect(t, true, web.v4, 80, "tcp", "udp")
	web.expect(t, true, a.v4, 80, "tcp", "udp")
}

// Hosts outside of the cluster are what blocks are for.
func TestBlocks(t *testing.T) {
	m := newMachine(t)
	web := m.connect("web")
	outside := &host{Pod: netns.NewMachine(t, "outside", netip.MustParsePrefix("192.168.7.2/24")), v4: "192.168.7.2"}
	web.Echo(t, 80)
	outside.Echo(t, 80)
	m.compiler.SetPod(web.pod("default"))
	policy := np("block", "web", toPods, fromPods)
	set := func(b networkingv1.IPBlock) {
		policy = policy.DeepCopy()
		peers := []networkingv1.NetworkPolicyPeer{{IPBlock: &b}}
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers}}
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers}}
		m.apply(policy)
	}
	for _, test := range []struct {
		block networkingv1.IPBlock
		want  bool
	}{
		{networkingv1.IPBlock{CIDR: "192.168.7.0/24"}, true},
		{networkingv1.IPBlock{CIDR: "192.168.7.0/24", Except: []string{"192.168.7.2/31"}}, false},
		{networkingv1.IPBlock{CIDR: "0.0.0.0/0"}, true},
		{networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"192.168.0.0/16"}}, false},
		{networkingv1.IPBlock{CIDR: "::/0"}, false},
	} {
		set(test.block)
		outside.expect(t, test.want, web.v4, 80, "tcp", "udp")
		web.expect(t, test.want, outside.v4, 80, "tcp", "udp")
	}
}

// The kernel accepts the fragments of any objects.
func TestKernelAcceptsFragments(t *testing.T) {
	m := newMachine(t)
	for seed := range uint64(60) {
		if errs := m.compiler.set(Objects(policytest.NewWorld(seed).Objects())); len(errs) > 0 {
			t.Fatal(errs)
		}
		m.write()
	}
}

// A chain that the kernel refuses isolates its pods.
func TestRefused(t *testing.T) {
	c := New(options)
	c.SetPod((&host{name: "a", v4: "10.0.0.1", v6: "fd00::1"}).pod("default"))
	must(t, c.SetPolicy(np("deny", "a", toPods)))
	for source, f := range c.Changes() {
		if len(f.Chains) == 0 {
			continue
		}
		if got := c.Refused(source); len(got) != 1 || got[0].String() != "default/deny" || c.Refused(source) != nil {
			t.Fatal("not refused once, but", got)
		}
		f = c.Changes()[source]
		if len(f.Chains) != 0 || f.Elements[nft.Element{Set: "ingress4", Key: "10.0.0.1"}] != "drop" {
			t.Errorf("got %v", f)
		}
		return
	}
	t.Error("no chain")
}

// BenchmarkKernel loads 1,000 policies over 500 pods, then changes one policy and one pod. A node has 110 of the
// pods, which is upstream's limit, or all.
func BenchmarkKernel(b *testing.B) {
	for _, local := range []int{110, 500} {
		all := large(local)
		b.Run(fmt.Sprintf("load/%d", local), func(b *testing.B) {
			for b.Loop() {
				loaded(b, all)
			}
		})
		b.Run(fmt.Sprintf("policy/%d", local), func(b *testing.B) {
			table, c := loaded(b, all)
			for i := 0; b.Loop(); i++ {
				np := all.Policies[i%local].DeepCopy()
				np.Spec.Ingress[0].Ports = numbered(corev1.ProtocolTCP, intstr.FromInt32(int32(10000+i)))
				if err := c.SetPolicy(np); err != nil {
					b.Fatal(err)
				}
				load(b, table, c)
			}
		})
		b.Run(fmt.Sprintf("pod/%d", local), func(b *testing.B) {
			table, c := loaded(b, all)
			for i := 0; b.Loop(); i++ {
				p := all.Pods[i%local].DeepCopy()
				p.Labels["app"] = fmt.Sprint(i % 11)
				c.SetPod(p)
				load(b, table, c)
			}
		})
	}
}

func loaded(b *testing.B, all Objects) (*nft.Table, *Compiler) {
	table, err := nft.Open("kindred-test")
	if err != nil {
		b.Fatal(err)
	}
	table.Put("", Base())
	c := New(options)
	if errs := c.set(all); len(errs) > 0 {
		b.Fatal(errs)
	}
	load(b, table, c)
	return table, c
}

func load(b *testing.B, table *nft.Table, c *Compiler) {
	for source, f := range c.Changes() {
		table.Put(source, f)
	}
	if refused, err := table.Write(b.Context()); err != nil || len(refused) > 0 {
		b.Fatal(refused, err)
	}
}
