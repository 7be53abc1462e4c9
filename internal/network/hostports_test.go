// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kindred-project/kindred/test/netns"
)

// hostPod creates a pod of the API with the addresses of a pod on the bridge, and waits for its host ports.
func hostPod(t *testing.T, client *fake.Clientset, n *Network, name string, at *netns.Pod, ports ...v1.ContainerPort) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{NodeName: "here", Containers: []v1.Container{{Ports: ports}}},
	}
	for _, a := range at.Addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, v1.PodIP{IP: a.String()})
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n.AwaitPod(short, pod, at.Addresses[0]) == nil {
		t.Errorf("pod %s does not wait for its host ports", name)
	}
	pod, err := client.CoreV1().Pods("ns").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	long, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, a := range at.Addresses {
		if err := n.AwaitPod(long, pod, a); err != nil {
			t.Fatal(err)
		}
	}
	return pod
}

// wantAnswer requires an answer of a pod, and returns the client that it saw.
func wantAnswer(t *testing.T, from *netns.Pod, network, address, want string) string {
	t.Helper()
	answer, err := from.Ask(t, network, address, 2*time.Second)
	name, client, _ := strings.Cut(answer, " ")
	if err != nil || name != want {
		t.Errorf("%s %s: got %q, %v; want %q", network, address, answer, err, want)
	}
	return client
}

func wantNone(t *testing.T, from *netns.Pod, network, address string) {
	t.Helper()
	if answer, err := from.Ask(t, network, address, 300*time.Millisecond); err == nil {
		t.Errorf("%s %s: got %q, want no answer", network, address, answer)
	}
}

func port(hostIP string, protocol v1.Protocol, hostPort int32) v1.ContainerPort {
	return v1.ContainerPort{HostIP: hostIP, Protocol: protocol, HostPort: hostPort, ContainerPort: 8080}
}

// hostPortBed is a node with two pods that serve, and another machine.
type hostPortBed struct {
	client      *fake.Clientset
	n           *Network
	first, next *netns.Pod
	outside     *netns.Pod
}

func newHostPortBed(t *testing.T) hostPortBed {
	t.Helper()
	client, n, _, bridge := startOnBridge(t)
	b := hostPortBed{client: client, n: n, first: bridge.Pod(t), next: bridge.Pod(t)}
	b.first.Serve(t, "first", 8080)
	b.next.Serve(t, "next", 8080)
	b.outside = netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	return b
}

func TestHostPorts(t *testing.T) {
	b := newHostPortBed(t)
	hostPod(t, b.client, b.n, "first", b.first, port("", v1.ProtocolTCP, 80), port("", v1.ProtocolUDP, 80))
	for _, from := range []*netns.Pod{b.outside, nil, b.next, b.first} {
		for _, address := range []string{"192.0.2.2:80", "10.244.0.1:80"} {
			wantAnswer(t, from, "tcp", address, "first")
			wantAnswer(t, from, "udp", address, "first")
		}
		wantNone(t, from, "tcp", "192.0.2.2:81")
	}
	for _, from := range []*netns.Pod{nil, b.next, b.first} {
		wantAnswer(t, from, "tcp", "[fd00:244::1]:80", "first")
		wantAnswer(t, from, "udp", "[fd00:244::1]:80", "first")
	}
	wantAnswer(t, nil, "tcp", "127.0.0.1:80", "first")
	wantAnswer(t, nil, "udp", "127.0.0.1:80", "first")
	if client := wantAnswer(t, b.outside, "tcp", "192.0.2.2:80", "first"); client != "192.0.2.1" {
		t.Errorf("the pod sees the client %s, want 192.0.2.1", client)
	}
	// As with portmap. It works without filters on the bridge (br_netfilter).
	for _, from := range []*netns.Pod{b.next, b.first} {
		if client := wantAnswer(t, from, "tcp", "192.0.2.2:80", "first"); client != "10.244.0.1" {
			t.Errorf("the pod sees the client %s, want the bridge's address", client)
		}
	}
	// Only packets to the machine itself are translated.
	b.outside.Serve(t, "outside", 80)
	wantAnswer(t, nil, "tcp", "192.0.2.1:80", "outside")
	wantAnswer(t, b.next, "tcp", "192.0.2.1:80", "outside")
}

func TestHostIPs(t *testing.T) {
	b := newHostPortBed(t)
	hostPod(t, b.client, b.n, "first", b.first, port("127.0.0.1", v1.ProtocolTCP, 80), port("192.0.2.2", v1.ProtocolUDP, 80), port("192.0.2.1", v1.ProtocolTCP, 81))
	hostPod(t, b.client, b.n, "next", b.next, port("192.0.2.2", v1.ProtocolTCP, 80), port("::", v1.ProtocolTCP, 82))
	wantAnswer(t, nil, "tcp", "127.0.0.1:80", "first")
	wantAnswer(t, b.outside, "udp", "192.0.2.2:80", "first")
	wantNone(t, nil, "udp", "127.0.0.1:80")
	for _, from := range []*netns.Pod{b.outside, nil, b.first, b.next} {
		wantAnswer(t, from, "tcp", "192.0.2.2:80", "next")
		wantNone(t, from, "tcp", "10.244.0.1:80")
		wantNone(t, from, "tcp", "192.0.2.2:82")
	}
	wantAnswer(t, nil, "tcp", "[fd00:244::1]:82", "next")
	// An address that is not the machine's own stays another machine's.
	wantNone(t, nil, "tcp", "192.0.2.1:81")
}

// TestNodePortTakesPrecedence: as with kube-proxy and portmap, a Service wins against a host port. Without endpoints it
// does not refuse the host port's packets.
func TestNodePortTakesPrecedence(t *testing.T) {
	b := newHostPortBed(t)
	hostPod(t, b.client, b.n, "first", b.first, port("", v1.ProtocolTCP, 30080))
	services := b.client.CoreV1().Services("ns")
	for name, answers := range map[string]string{"svc": "pod", "empty": "first"} {
		svc := newService(name, "10.96.0.1")
		if name == "empty" {
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7"}
			if _, err := services.Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = v1.ServiceTypeNodePort, 30080
		if _, err := services.Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		wantAnswer(t, b.outside, "tcp", "192.0.2.2:30080", answers)
		if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// TestHostPortIsFreed: the port is closed when the pod has ended, TCP connections stay, and a UDP client that keeps its
// port comes to the next pod.
func TestHostPortIsFreed(t *testing.T) {
	b := newHostPortBed(t)
	b.first.Echo(t, 9000)
	echo := port("", v1.ProtocolTCP, 90)
	echo.ContainerPort = 9000
	udp, err := b.outside.Dial(t, "udp", "192.0.2.2:80", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	// The flow begins before there is a pod.
	if answer, err := exchange(udp); err == nil {
		t.Fatalf("got %q without a pod", answer)
	}
	pod := hostPod(t, b.client, b.n, "first", b.first, port("", v1.ProtocolUDP, 80), echo)
	eventuallyFrom(t, udp, "first")
	tcp, err := b.outside.Dial(t, "tcp", "192.0.2.2:90", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	pod.Status.Phase = v1.PodSucceeded
	if _, err := b.client.CoreV1().Pods("ns").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; {
		if _, err := exchange(udp); err != nil {
			break
		}
		if time.Since(began) > 5*time.Second {
			t.Fatal("the ended pod still gets UDP packets")
		}
	}
	wantNone(t, b.outside, "tcp", "192.0.2.2:90")
	if answer, err := exchange(tcp); err != nil || answer != "x" {
		t.Errorf("the open TCP connection: %q, %v", answer, err)
	}
	hostPod(t, b.client, b.n, "next", b.next, port("", v1.ProtocolUDP, 80))
	eventuallyFrom(t, udp, "next")
}

// TestHostPortPolicies: policies judge the client of a host port before its address is translated.
func TestHostPortPolicies(t *testing.T) {
	b := newHostPortBed(t)
	hostPod(t, b.client, b.n, "first", b.first, port("", v1.ProtocolTCP, 80))
	hostPod(t, b.client, b.n, "next", b.next, port("", v1.ProtocolTCP, 81))
	wantAnswer(t, b.next, "tcp", "192.0.2.2:80", "first")
	allow := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "outside"}}
	allow.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	allow.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.1/32"}}}}}
	if _, err := b.client.NetworkingV1().NetworkPolicies("ns").Create(t.Context(), allow, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	wantNone(t, b.next, "tcp", "192.0.2.2:80")
	wantAnswer(t, b.outside, "tcp", "192.0.2.2:80", "first")
	wantAnswer(t, nil, "tcp", "192.0.2.2:80", "first")
	wantAnswer(t, nil, "tcp", "127.0.0.1:80", "first")
}

// exchange sends a byte and reads an answer.
func exchange(conn net.Conn) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := conn.Write([]byte("x")); err != nil {
		return "", err
	}
	buffer := make([]byte, 64)
	n, err := conn.Read(buffer)
	return string(buffer[:n]), err
}

func eventuallyFrom(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	var answer string
	var err error
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		if answer, err = exchange(conn); err == nil && strings.HasPrefix(answer, want) {
			return
		}
	}
	t.Errorf("got %q, %v; want an answer of %s", answer, err, want)
}
