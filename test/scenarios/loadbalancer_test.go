// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// TestLoadBalancer: a Service of the type LoadBalancer gets the address of the node, answers there, and loses it with
// its type. A second one with the same port waits for that.
func TestLoadBalancer(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.112.0.0/16"))
	s.apply(backends)
	const port = "18080" // of this test alone: other clusters on the machine have the same address
	balancer := func(name string) {
		s.apply(`
apiVersion: v1
kind: Service
metadata: {name: ` + name + `}
spec:
  type: LoadBalancer
  selector: {app: who}
  ports: [{port: ` + port + `, targetPort: 8080}]
`)
	}
	address := func(name string) string {
		return s.jsonpath("{.status.loadBalancer.ingress[*].ip}", "service", name)
	}
	balancer("first")
	s.kubectl("wait", "--for=jsonpath={.status.loadBalancer.ingress}", "service/first", "--timeout=30s")
	first := address("first")
	node := s.nodes()[0]
	external := s.jsonpath(`{.status.addresses[?(@.type=="ExternalIP")].address}`, "node", node)
	if external == "" {
		external = s.jsonpath(`{.status.addresses[?(@.type=="InternalIP")].address}`, "node", node)
	}
	if first != external {
		t.Errorf("the Service has the address %q, the node %q", first, external)
	}
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	s.eventually("both pods answer", func() error {
		return bothAnswer(first + ":" + port)
	})
	balancer("second")
	s.eventually("an event names the Service that has the port", func() error {
		events := s.kubectl("events", "--for=service/second")
		if !strings.Contains(events, "is in use by the Service "+s.namespace+"/first") {
			return fmt.Errorf("events: %s", events)
		}
		return nil
	})
	if got := address("second"); got != "" {
		t.Errorf("both have the address %s", got)
	}
	s.cluster.kill(t)
	if _, err := fetch(first + ":" + port); err != nil {
		t.Errorf("without the process: %v", err)
	}
	s.cluster.again(t)
	if address("first") != first || address("second") != "" {
		t.Errorf("after the restart: %q and %q", address("first"), address("second"))
	}
	s.kubectl("patch", "service", "first", "--type=merge", "-p", `{"spec":{"type":"ClusterIP"}}`)
	s.eventually("the second one gets the address", func() error {
		if address("second") != first || address("first") != "" {
			return fmt.Errorf("first %q, second %q", address("first"), address("second"))
		}
		return nil
	})
	s.kubectl("delete", "service", "second", "--timeout=20s")
	s.eventually("nothing answers", func() error {
		if _, err := fetch(first + ":" + port); err == nil {
			return fmt.Errorf("it answers still")
		}
		return nil
	})
}

// TestLoadBalancerPools: a Service with both IP families gets an address of a pool of each. Reset removes what announces
// them.
func TestLoadBalancerPools(t *testing.T) {
	needContainers(t)
	machine("ip link add kin-pools type bridge && ip link set kin-pools up" +
		" && ip address add 203.0.113.1/24 dev kin-pools && ip address add 2001:db8:5::1/64 nodad dev kin-pools").run(t)
	t.Cleanup(func() { machine("ip link del kin-pools").run(t) })
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.115.0.0/16,fd00:115::/112",
		"--load-balancer-pool", "203.0.113.16/31", "--load-balancer-pool", "2001:db8:5::10/127"))
	s.apply(backends)
	s.apply(`
apiVersion: v1
kind: Service
metadata: {name: both}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: who}
  ports: [{port: 80, targetPort: 8080}]
`)
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	s.kubectl("wait", "--for=jsonpath={.status.loadBalancer.ingress[1]}", "service/both", "--timeout=30s")
	addresses := strings.Fields(s.jsonpath("{.status.loadBalancer.ingress[*].ip}", "service", "both"))
	for i, pool := range []string{"203.0.113.1", "2001:db8:5::1"} {
		if !strings.HasPrefix(addresses[i], pool) {
			t.Errorf("address %d of %v is not of the pool %s", i, addresses, pool)
		}
		s.eventually(addresses[i]+" answers", func() error {
			return bothAnswer(net.JoinHostPort(addresses[i], "80"))
		})
	}
	if proxies := machine("ip -6 neigh show proxy").run(t); !strings.Contains(proxies, addresses[1]+" dev kin-pools") {
		t.Errorf("the kernel answers neighbor solicitations for %q", proxies)
	}
	s.cluster.kill(t)
	if r := s.cluster.run("reset"); r.code != 0 {
		t.Errorf("reset: exit status %d: %s%s", r.code, r.out, r.err)
	}
	if left := machine("ip -6 neigh show proxy; ip address").run(t); strings.Contains(left, "2001:db8:5::10") || strings.Contains(left, "2001:db8:5::11") {
		t.Errorf("after the reset: %s", left)
	}
}

// machine is a shell command.
type machine string

func (m machine) run(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", string(m)).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", m, err, out)
	}
	return string(out)
}

// TestLoadBalancerPool: each Service gets an address of the pool, and keeps it over a restart. The announcements stay on
// a bridge without ports.
func TestLoadBalancerPool(t *testing.T) {
	needContainers(t)
	machine("ip link add kin-pool type bridge && ip address add 198.51.100.1/24 dev kin-pool && ip link set kin-pool up").run(t)
	t.Cleanup(func() { machine("ip link del kin-pool").run(t) })
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.113.0.0/16", "--load-balancer-pool", "198.51.100.16/31"))
	s.apply(backends)
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	for _, name := range []string{"one", "two", "three"} {
		s.kubectl("expose", "deployment", "who", "--type=LoadBalancer", "--name="+name, "--port=80", "--target-port=8080")
	}
	addresses := func() string {
		return s.jsonpath("{.items[*].status.loadBalancer.ingress[*].ip}", "services")
	}
	s.eventually("two Services have addresses, and the third one an event", func() error {
		if got, events := addresses(), s.kubectl("events"); len(strings.Fields(got)) != 2 || !strings.Contains(events, "all addresses of the pools of load balancers are in use") {
			return fmt.Errorf("addresses %s, events: %s", got, events)
		}
		return nil
	})
	before := addresses()
	for _, a := range strings.Fields(before) {
		s.eventually(a+" answers", func() error {
			return bothAnswer(a)
		})
	}
	s.cluster.kill(t)
	if _, err := fetch(strings.Fields(before)[0]); err != nil {
		t.Errorf("without the process: %v", err)
	}
	s.cluster.again(t)
	if got := addresses(); got != before {
		t.Errorf("after the restart %s, before %s", got, before)
	}
	s.kubectl("delete", "service", "--all", "--timeout=20s")
	s.eventually("the node does not have the addresses", func() error {
		if out := machine("ip -4 address").run(t); strings.Contains(out, "198.51.100.16/") || strings.Contains(out, "198.51.100.17/") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
