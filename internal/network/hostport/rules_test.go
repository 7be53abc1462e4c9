// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package hostport

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// newPod returns a running pod with two addresses and these ports.
func newPod(ports ...v1.ContainerPort) *v1.Pod {
	return &v1.Pod{
		Spec:   v1.PodSpec{Containers: []v1.Container{{Ports: ports}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.2", PodIPs: []v1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}}},
	}
}

func elements(pod *v1.Pod) string {
	var lines []string
	for e, value := range Rules(Of(pod)).Elements {
		lines = append(lines, fmt.Sprintf("%s { %s : %s }", e.Set, e.Key, value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestRules(t *testing.T) {
	web := v1.ContainerPort{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP}
	at := func(ip string, protocol v1.Protocol) v1.ContainerPort {
		p := web
		p.HostIP, p.Protocol = ip, protocol
		return p
	}
	changed := func(change func(*v1.Pod)) *v1.Pod {
		pod := newPod(web)
		change(pod)
		return pod
	}
	const any4 = "hostport-any4 { 6 . 8080 : goto hostport-any4 }\nhostport-any4-pods { 6 . 8080 : 10.0.0.2 . 80 }"
	const any6 = "hostport-any6 { 6 . 8080 : goto hostport-any6 }\nhostport-any6-pods { 6 . 8080 : fd00::2 . 80 }"
	for name, tt := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"without host port":    {newPod(v1.ContainerPort{ContainerPort: 80}), ""},
		"all addresses":        {newPod(web), any4 + "\n" + any6},
		"default protocol":     {newPod(at("", "")), any4 + "\n" + any6},
		"all IPv4 addresses":   {newPod(at("0.0.0.0", "TCP")), any4},
		"all IPv6 addresses":   {newPod(at("::", "TCP")), any6},
		"malformed address":    {newPod(at("x", "TCP")), ""},
		"listed twice":         {newPod(web, web), any4 + "\n" + any6},
		"in the node's net":    {changed(func(p *v1.Pod) { p.Spec.HostNetwork = true }), ""},
		"without address":      {changed(func(p *v1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil }), ""},
		"IPv4 only":            {changed(func(p *v1.Pod) { p.Status.PodIPs = nil }), any4},
		"succeeded":            {changed(func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), ""},
		"failed":               {changed(func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), ""},
		"pending with address": {changed(func(p *v1.Pod) { p.Status.Phase = v1.PodPending }), any4 + "\n" + any6},
		"sidecar": {changed(func(p *v1.Pod) {
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
			p.Spec.InitContainers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}), any4 + "\n" + any6},
		"init container": {changed(func(p *v1.Pod) { p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil }), ""},
		"addresses and protocols": {newPod(at("127.0.0.1", "TCP"), at("192.0.2.1", "UDP"), at("2001:db8::1", "SCTP")),
			"hostport-at4 { 127.0.0.1 . 6 . 8080 : goto hostport-at4 }\n" +
				"hostport-at4 { 192.0.2.1 . 17 . 8080 : goto hostport-at4 }\n" +
				"hostport-at4-pods { 127.0.0.1 . 6 . 8080 : 10.0.0.2 . 80 }\n" +
				"hostport-at4-pods { 192.0.2.1 . 17 . 8080 : 10.0.0.2 . 80 }\n" +
				"hostport-at6 { 2001:db8::1 . 132 . 8080 : goto hostport-at6 }\n" +
				"hostport-at6-pods { 2001:db8::1 . 132 . 8080 : fd00::2 . 80 }"},
	} {
		if diff := cmp.Diff(tt.want, elements(tt.pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestBase(t *testing.T) {
	var lines []string
	for name, c := range Base().Chains {
		if strings.HasSuffix(name, "6") {
			continue // as for IPv4
		}
		lines = append(lines, fmt.Sprintf("%s: %s", name, strings.Join(c.Rules, "; ")))
	}
	slices.Sort(lines)
	const enter = "meta nfproto ipv4 fib daddr type local jump hostports4; meta nfproto ipv6 ip6 daddr != ::1 fib daddr type local jump hostports6"
	want := []string{
		"hostport-any4: ip saddr @pod-ranges4 meta mark set meta mark or 0x4000; dnat ip to meta l4proto . th dport map @hostport-any4-pods",
		"hostport-at4: ip saddr @pod-ranges4 meta mark set meta mark or 0x4000; dnat ip to ip daddr . meta l4proto . th dport map @hostport-at4-pods",
		"hostport-output: " + enter,
		"hostport-prerouting: " + enter,
		"hostports4: ip daddr . meta l4proto . th dport vmap @hostport-at4; meta l4proto . th dport vmap @hostport-any4",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
