// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }

const table = "kindred-test"

// start runs the network of a node with one pod that serves on port 8080, and its Services 10.96.0.1:80 and
// [fd00:96::1]:80.
func start(t *testing.T, pools ...netip.Prefix) (*fake.Clientset, *Network, *record.FakeRecorder) {
	t.Helper()
	client, n, events, _ := startOnBridge(t, pools...)
	return client, n, events
}

// startOnBridge is start, and returns the bridge of the node's pods as well.
func startOnBridge(t *testing.T, pools ...netip.Prefix) (*fake.Clientset, *Network, *record.FakeRecorder, *netns.Bridge) {
	t.Helper()
	pods := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64")}
	bridge := netns.NewBridge(t, "kin-test", pods...)
	pod := bridge.Pod(t)
	pod.Serve(t, "pod", 8080)
	client := fake.NewClientset(
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", Annotations: map[string]string{PoolsAnnotation: PoolsText(pools)}}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:96::/112"}}},
		newService("svc", "10.96.0.1"), newSlice("svc", discoveryv1.AddressTypeIPv4, pod.Addresses[0]),
		newService("svc6", "fd00:96::1"), newSlice("svc6", discoveryv1.AddressTypeIPv6, pod.Addresses[1]),
	)
	events := record.NewFakeRecorder(10)
	f := informers.NewSharedInformerFactory(client, 0)
	rules, err := OpenRules(t.Context(), RuleOptions{Table: table, Bridge: bridge.Name, PodRanges: pods})
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(Options{
		Node: "here", Rules: rules,
		Pools:     pools,
		Informers: f, Events: events, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	f.Start(ctx.Done())
	go func() {
		defer close(done)
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		if err := Remove(context.Background(), table, bridge.Name); err != nil {
			t.Error(err)
		}
		out, _ := exec.Command("sh", "-c", "nft list tables; ip route; ip -6 route; ip -6 neigh show proxy").CombinedOutput()
		if left := regexp.MustCompile(table + "|10.96.0.0|fd00:96|proxy").Find(out); left != nil {
			t.Errorf("left behind: %s", out)
		}
	})
	<-n.Ready()
	return client, n, events, bridge
}

// newSlice returns the endpoints of a Service: port 8080 of an address.
func newSlice(service string, family discoveryv1.AddressType, address netip.Addr) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(8080)), Protocol: ptr.To(v1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address.String()}, NodeName: ptr.To("here")}},
	}
}

func newService(name, ip string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
			Ports: []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP}},
		},
	}
}

// eventually waits until the Service answers, or does not.
func eventually(t *testing.T, address string, answers bool) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
		if _, err = (*netns.Pod)(nil).Ask(t, "tcp", address, 500*time.Millisecond); (err == nil) == answers {
			return
		}
	}
	t.Fatalf("%s: got %v; want an answer: %t", address, err, answers)
}

func TestServiceFollowsTheAPI(t *testing.T) {
	client, _, _ := start(t)
	ctx := t.Context()
	eventually(t, "10.96.0.1:80", true)
	slice, err := client.DiscoveryV1().EndpointSlices("ns").Get(ctx, "svc-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slice.Endpoints[0].Conditions.Ready = ptr.To(false)
	if slice, err = client.DiscoveryV1().EndpointSlices("ns").Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "10.96.0.1:80", false)
	slice.Endpoints[0].Conditions.Ready = ptr.To(true)
	if _, err := client.DiscoveryV1().EndpointSlices("ns").Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "10.96.0.1:80", true)
	if err := client.CoreV1().Services("ns").Delete(ctx, "svc", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "10.96.0.1:80", false)
}

func TestRulesAndRoutesAreMended(t *testing.T) {
	start(t)
	for _, damage := range []string{"nft flush ruleset", "ip link del kin-test-svc", "nft flush chain inet " + table + " services"} {
		eventually(t, "10.96.0.1:80", true)
		if out, err := exec.Command("sh", "-c", damage).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", damage, err, out)
		}
		if _, err := (*netns.Pod)(nil).Ask(t, "tcp", "10.96.0.1:80", 300*time.Millisecond); err == nil {
			t.Fatalf("%s: the Service still answers", damage)
		}
		began := time.Now()
		eventually(t, "10.96.0.1:80", true)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: mended after %s", damage, took)
		}
	}
}

// A Service that the kernel refuses gets an event, and the others are routed.
func TestRefusedServiceGetsAnEvent(t *testing.T) {
	client, _, events := start(t)
	bad := newService("bad", "10.96.0.2")
	bad.Spec.Ports[0].Port = 70000 // the API would not accept it
	if _, err := client.CoreV1().Services("ns").Create(t.Context(), bad, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-events.Events:
		if !strings.Contains(e, "RulesRefused Node here cannot route this Service") {
			t.Error(e)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no event")
	}
	eventually(t, "10.96.0.1:80", true)
}

func podWith(uid types.UID) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}} }

// TestPodAwaitsPolicies: once there is a policy, a pod waits until the kernel has its address.
func TestPodAwaitsPolicies(t *testing.T) {
	client, n, _ := start(t)
	ctx := t.Context()
	address := netip.MustParseAddr("10.244.0.9")
	waits := func() bool {
		now, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		return n.AwaitPod(now, podWith("uid"), address) != nil
	}
	if waits() {
		t.Error("a pod waits although there are no policies")
	}
	policies := client.NetworkingV1().NetworkPolicies("other")
	if _, err := policies.Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "deny"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !waits(); {
		if time.Since(began) > 10*time.Second {
			t.Fatal("a pod does not wait although there is a policy")
		}
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"}, Spec: v1.PodSpec{NodeName: "here"}}
	pod.Status.PodIPs = []v1.PodIP{{IP: address.String()}}
	if _, err := client.CoreV1().Pods("ns").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := n.AwaitPod(limited, podWith("uid"), address); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("nft", "get", "element", "inet", table, "known4", "{ "+address.String()+" }").CombinedOutput(); err != nil {
		t.Errorf("the wait ended before the address was known: %v: %s", err, out)
	}
	if err := policies.Delete(ctx, "deny", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitPod(limited, podWith("another"), address); err != nil {
		t.Errorf("without policies again: %v", err)
	}
}

func TestOutermost(t *testing.T) {
	parse := func(list ...string) (all []netip.Prefix) {
		for _, s := range list {
			all = append(all, netip.MustParsePrefix(s))
		}
		return all
	}
	got := outermost(parse("10.96.0.0/12", "10.96.0.0/16", "10.97.0.0/16", "10.112.0.0/16", "fd00::/112"))
	want := parse("10.96.0.0/12", "10.112.0.0/16", "fd00::/112")
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
