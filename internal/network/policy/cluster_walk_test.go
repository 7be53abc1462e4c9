// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/kindred-project/kindred/internal/network/policy/policytest"
)

var port80 = intstr.FromInt32(80)

func (m *machine) applyCluster(policies ...*v1alpha2.ClusterNetworkPolicy) {
	m.t.Helper()
	for _, p := range policies {
		must(m.t, m.compiler.SetClusterPolicy(p))
	}
	m.write()
}

// webAndClients connects a server with the ports 80 and 82, of which the latter has the name http, and two clients.
func webAndClients(t *testing.T) (m *machine, a, b, web *host) {
	m = newMachine(t)
	a, b, web = m.connect("a"), m.connect("b"), m.connect("web")
	web.Echo(t, 80, 82)
	for _, h := range []*host{a, b, web} {
		m.compiler.SetPod(h.pod("default", corev1.ContainerPort{Name: "http", ContainerPort: 82, Protocol: corev1.ProtocolTCP}))
	}
	m.write()
	return m, a, b, web
}

func TestTiersOfIngress(t *testing.T) {
	m, a, b, web := webAndClients(t)
	isolating := np("np", "web", toPods)
	m.apply(isolating)
	a.expectOf(t, web, nil, []string{"tcp/80", "udp/80"})

	// The Admin tier accepts what a NetworkPolicy would not.
	toHTTP := cnp("accept", v1alpha2.AdminTier, 10, "a", acceptAll)
	toHTTP.Spec.Ingress[0].Protocols = []v1alpha2.ClusterNetworkPolicyProtocol{{DestinationNamedPort: "http"}}
	m.applyCluster(toHTTP)
	a.expectOf(t, web, []string{"tcp/82"}, []string{"tcp/80", "udp/82"})
	b.expectOf(t, web, nil, []string{"tcp/82"})

	// A policy of higher precedence denies it again, then passes it on.
	m.applyCluster(cnp("deny", v1alpha2.AdminTier, 5, "a", denyAll))
	a.expectOf(t, web, nil, []string{"tcp/82"})
	m.applyCluster(cnp("deny", v1alpha2.AdminTier, 5, "a", passAll))
	a.expectOf(t, web, nil, []string{"tcp/82"})
	isolating = isolating.DeepCopy()
	isolating.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: numbered(corev1.ProtocolTCP, port80)}}
	m.apply(isolating)
	a.expectOf(t, web, []string{"tcp/80"}, []string{"tcp/82"})

	// The Baseline tier is for pods without NetworkPolicies.
	m.applyCluster(cnp("baseline", v1alpha2.BaselineTier, 1, "b", denyAll))
	b.expectOf(t, web, []string{"tcp/80"}, nil)
	m.compiler.DeletePolicy("default", "np")
	m.write()
	b.expectOf(t, web, nil, []string{"tcp/80", "udp/80"})
	a.expectOf(t, web, []string{"tcp/80", "udp/82"}, nil)
	for _, name := range []string{"accept", "deny", "baseline"} {
		m.compiler.DeleteClusterPolicy(name)
	}
	m.write()
	b.expectOf(t, web, []string{"tcp/80", "udp/80"}, nil)
}

// What the Admin tier accepts in one direction is still judged in the other.
func TestAcceptIsForOneDirection(t *testing.T) {
	m, a, _, web := webAndClients(t)
	out := egressTo("out", v1alpha2.ClusterNetworkPolicyEgressPeer{Pods: podsNamed("web")}, acceptAll)
	m.applyCluster(out)
	m.apply(np("from-a", "a", fromPods))
	a.expectOf(t, web, []string{"tcp/80"}, nil)
	m.apply(np("to-web", "web", toPods))
	a.expectOf(t, web, nil, []string{"tcp/80"})
	m.applyCluster(cnp("in", v1alpha2.AdminTier, 1, "a", acceptAll))
	a.expectOf(t, web, []string{"tcp/80"}, nil)
}

// egressTo selects the pod a.
func egressTo(name string, to v1alpha2.ClusterNetworkPolicyEgressPeer, action v1alpha2.ClusterNetworkPolicyRuleAction, protocols ...v1alpha2.ClusterNetworkPolicyProtocol) *v1alpha2.ClusterNetworkPolicy {
	p := cnp(name, v1alpha2.AdminTier, 100, "")
	p.Spec.Subject.Pods = podsNamed("a")
	p.Spec.Egress = []v1alpha2.ClusterNetworkPolicyEgressRule{{Action: action, To: []v1alpha2.ClusterNetworkPolicyEgressPeer{to}, Protocols: protocols}}
	return p
}

func TestClusterEgress(t *testing.T) {
	m, a, b, web := webAndClients(t)
	node.Echo(t, 90)
	nodes := v1alpha2.ClusterNetworkPolicyEgressPeer{Nodes: &metav1.LabelSelector{}}
	m.compiler.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: gateway}}},
	})
	m.applyCluster(egressTo("deny", nodes, denyAll))
	a.expect(t, false, gateway, 90, "tcp", "udp")
	b.expect(t, true, gateway, 90, "tcp", "udp")
	a.expectOf(t, web, []string{"tcp/80"}, nil)

	m.applyCluster(egressTo("deny", v1alpha2.ClusterNetworkPolicyEgressPeer{Networks: []v1alpha2.CIDR{"10.0.0.0/24", "fd00::/64"}}, denyAll, tcp(80)...))
	a.expect(t, true, gateway, 90, "tcp", "udp")
	a.expectOf(t, web, []string{"udp/80", "tcp/82"}, []string{"tcp/80"})

	byName := v1alpha2.ClusterNetworkPolicyProtocol{DestinationNamedPort: "http"}
	m.applyCluster(egressTo("deny", v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: &metav1.LabelSelector{}}, denyAll, byName))
	a.expectOf(t, web, []string{"tcp/80", "udp/82"}, []string{"tcp/82"})
}

func TestClusterPoliciesCutEstablishedConnections(t *testing.T) {
	m, a, _, web := webAndClients(t)
	c, err := a.Dial(t, "tcp", net.JoinHostPort(web.v4, "80"), patience)
	must(t, err)
	defer c.Close()
	if !answers(c, "before", longPatience) {
		t.Fatal("no answer before the policy")
	}
	m.applyCluster(cnp("deny", v1alpha2.BaselineTier, 1, "a", denyAll))
	if answers(c, "during", patience) {
		t.Error("answer although a policy forbids it")
	}
	again := func() bool {
		next, err := a.Dial(t, "tcp", net.JoinHostPort(web.v4, "80"), patience)
		if err == nil {
			next.Close()
		}
		return err == nil
	}
	if again() {
		t.Error("a new connection although a policy forbids it")
	}
	m.applyCluster(cnp("allow", v1alpha2.AdminTier, 1, "a", acceptAll))
	if !again() {
		t.Error("no connection although the Admin tier accepts it")
	}
}

// The kernel accepts the fragments of any objects with tiers.
func TestKernelAcceptsFragmentsOfTiers(t *testing.T) {
	m := newMachine(t)
	for seed := range uint64(60) {
		m.compiler.set(Objects(policytest.NewWorld(seed).WithTiers()))
		m.write()
	}
}
