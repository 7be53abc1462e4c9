// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNetworkIsMended: what another program removes of the node's network is back within five seconds, and the log says
// so once. The pods go on.
func TestNetworkIsMended(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.116.0.0/16,fd00:116::/112"))
	s.apply(backends)
	s.kubectl("run", "client", "--image="+image, "--", "sleep", "3600")
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	s.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
	before := s.lives("app=who")
	ip := s.jsonpath("{.spec.clusterIP}", "service", "who")
	name := "who." + s.namespace + ".svc.cluster.local"
	pod := s.pods("app=who")[0].Status.PodIPs[1].IP // its IPv6 address
	works := func() error {
		if _, err := fetch(ip); err != nil {
			return fmt.Errorf("the machine: %w", err)
		}
		for _, url := range []string{"http://" + name, "http://[" + pod + "]:8080"} {
			if r := s.try("exec", "client", "--", "timeout", "3", "wget", "-q", "-O", "-", url); r.code != 0 {
				return fmt.Errorf("a pod asks %s: exit status %d: %s%s", url, r.code, r.out, r.err)
			}
		}
		return nil
	}
	s.eventually("the network works", works)
	id := s.cluster.marks(t)[1]
	lines := func() int {
		content, err := os.ReadFile(filepath.Join(s.cluster.dir, "logs", "kindred.log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(content), "Another program changed")
	}
	for _, fault := range []machine{
		machine("ip link delete kd" + id),
		machine("ip link set kd" + id + " down"),
		machine("ip link delete kd" + id + "-svc"),
		machine("ip address flush dev kd" + id),
		machine("nft delete table inet kindred-" + id),
		// Each is one change to what is looked at, so that the log says so once.
		machine("iptables -D FORWARD -j KINDRED-" + id + "-FWD"),
		machine("ip6tables -t nat -F KINDRED-" + id + "-MASQ && ip6tables -t nat -D POSTROUTING -j KINDRED-" + id + "-MASQ"),
	} {
		logged := lines()
		fault.run(t)
		began := time.Now()
		for !answersNow(ip) {
			if time.Since(began) > 5*time.Second {
				t.Fatalf("five seconds after %q, the Service does not answer", fault)
			}
		}
		s.eventually("the network works", works)
		s.eventually("the log says so", func() error {
			if n := lines() - logged; n != 1 {
				return fmt.Errorf("after %q, %d lines of the log say so", fault, n)
			}
			return nil
		})
	}
	if rules := machine("iptables -S FORWARD; ip6tables -t nat -S").run(t); !strings.Contains(rules, "KINDRED-"+id+"-FWD") || !strings.Contains(rules, "-j MASQUERADE") {
		t.Errorf("the rules of the host's firewall are not back:\n%s", rules)
	}

	// Without the process nothing mends; the next start does.
	s.cluster.kill(t)
	machine("ip link delete kd" + id).run(t)
	s.cluster.again(t)
	s.eventually("the network works after the restart", works)
	s.stayed(before, "app=who")
}

// answersNow reports whether a Service accepts a connection at once. Packets that the kernel sends again would take longer.
func answersNow(ip string) bool {
	conn, err := net.DialTimeout("tcp", ip+":80", 500*time.Millisecond)
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return false
	}
	conn.Close()
	return true
}
