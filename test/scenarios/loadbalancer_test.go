// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
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
		if who := s.answers(first + ":" + port); len(who) != 2 {
			return fmt.Errorf("answers of %v", who)
		}
		return nil
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
