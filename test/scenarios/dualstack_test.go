// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// TestDualStack: with ranges of both IP families, pods and Services have addresses of both, and are reached by both. The
// machine reaches pods and Services by IPv6 as well, also while the process is gone.
func TestDualStack(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.114.0.0/16,fd00:114::/112"))
	s.apply(backends)
	s.apply(`
apiVersion: v1
kind: Service
metadata: {name: both}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: who}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  containers:
  - name: main
    image: "` + image + `"
    command: [sleep, "3600"]
    env:
    - name: IPS
      valueFrom: {fieldRef: {fieldPath: status.podIPs}}
    - name: HOSTS
      valueFrom: {fieldRef: {fieldPath: status.hostIPs}}
`)
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	s.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")

	ranges := strings.Fields(s.jsonpath("{.spec.podCIDRs[*]}", "node", s.nodes()[0]))
	node := strings.Fields(s.jsonpath(`{.status.addresses[?(@.type=="InternalIP")].address}`, "node", s.nodes()[0]))
	pod := strings.Fields(s.jsonpath("{.status.podIPs[*].ip}", "pod", "client"))
	if len(ranges) != 2 || len(node) != 2 || len(pod) != 2 {
		t.Fatalf("pod ranges %v, addresses of the node %v, of a pod %v; want two of each", ranges, node, pod)
	}
	for i, r := range ranges {
		if p := netip.MustParsePrefix(r); !p.Contains(netip.MustParseAddr(pod[i])) || !p.Contains(netip.MustParseAddr(node[i])) {
			t.Errorf("the addresses %s of a pod and %s of the node are not of %s", pod[i], node[i], r)
		}
	}
	s.prints(strings.Join(pod, ",")+" "+strings.Join(node, ",")+"\n", "exec", "client", "--", "sh", "-c", "echo $IPS $HOSTS")

	clusterIPs := strings.Fields(s.jsonpath("{.spec.clusterIPs[*]}", "service", "both"))
	if len(clusterIPs) != 2 {
		t.Fatalf("the Service has the addresses %v, want two", clusterIPs)
	}
	nodePort := s.jsonpath("{.spec.ports[0].nodePort}", "service", "both")
	reached := func() {
		t.Helper()
		for i, ip := range clusterIPs {
			for _, address := range []string{net.JoinHostPort(ip, "80"), net.JoinHostPort(node[i], nodePort)} {
				s.eventually("both pods answer at "+address, func() error {
					return bothAnswer(address)
				})
			}
		}
	}
	reached()
	ask := "for i in $(seq 20); do wget -q -O - http://" + net.JoinHostPort(clusterIPs[1], "80") + "; done | sort -u | wc -l"
	s.prints("2\n", "exec", "client", "--", "sh", "-c", ask)
	for _, backend := range s.pods("app=who") { // one of them is reached by itself
		s.prints("2\n", "exec", backend.Name, "--", "sh", "-c", ask)
	}
	if found := s.kubectl("exec", "client", "--", "nslookup", "-type=aaaa", "both."+s.namespace+".svc.cluster.local"); !strings.Contains(found, clusterIPs[1]) {
		t.Errorf("the name of the Service resolves to %s, want %s", found, clusterIPs[1])
	}

	direct := s.pods("app=who")[0].Status.PodIPs[1].IP
	denied := func(want bool) {
		t.Helper()
		for _, ip := range []string{net.JoinHostPort(direct, "8080"), net.JoinHostPort(clusterIPs[1], "80")} {
			s.eventually(fmt.Sprintf("a policy denies %s: %v", ip, want), func() error {
				if r := s.try("exec", "client", "--", "timeout", "2", "wget", "-q", "-O", "-", "http://"+ip); (r.code != 0) != want {
					return fmt.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
				}
				return nil
			})
		}
	}
	denied(false)
	s.apply(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: silence}
spec: {podSelector: {matchLabels: {app: who}}, policyTypes: [Ingress]}
`)
	denied(true)
	s.kubectl("delete", "networkpolicy", "silence")
	denied(false)

	s.cluster.kill(t)
	for _, ip := range clusterIPs {
		if err := bothAnswer(net.JoinHostPort(ip, "80")); err != nil {
			t.Errorf("without the process: %v", err)
		}
	}
	s.cluster.again(t)
	reached()
}
