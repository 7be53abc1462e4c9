// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// onlyToWho forbids the pods with a role all connections but those of friends to the pods of who.
const onlyToWho = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: silence}
spec: {podSelector: {matchExpressions: [{key: role, operator: Exists}]}, policyTypes: [Egress]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends}
spec:
  podSelector: {matchLabels: {role: friend}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: who}}}], ports: [{port: 8080}]}]
`

// firstPacket is a pod whose container, or init container, connects at once. Its log has the number of segments
// that were sent again, and "connected" if there was an answer.
func firstPacket(name, role, server string, initial bool) string {
	limit := 30
	if role == "stranger" { // its attempt does not end
		limit = 3
	}
	connects := fmt.Sprintf(`    command: [sh, -c, "timeout %d wget -q -O /dev/null http://%s:8080 && echo connected; awk '/^Tcp:/ {print \"again\", $13}' /proc/net/snmp | tail -n 1"]`, limit, server)
	containers := "  containers:\n  - name: main\n    image: " + image + "\n" + connects
	if initial {
		containers = "  initContainers:\n  - name: main\n    image: " + image + "\n" + connects +
			"\n  containers:\n  - name: then\n    image: " + image + "\n    command: [\"true\"]"
	}
	return fmt.Sprintf("\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {role: %s, first: packet}}\nspec:\n  restartPolicy: Never\n%s\n", name, role, containers)
}

// beginners creates pods that connect at once: friends and strangers, half of them in init containers.
func (s *session) beginners(prefix, server string) {
	s.Helper()
	var manifests strings.Builder
	for i := range 6 {
		manifests.WriteString(firstPacket(fmt.Sprintf("%s-friend-%d", prefix, i), "friend", server, i%2 == 0))
	}
	for i := range 3 {
		manifests.WriteString(firstPacket(fmt.Sprintf("%s-stranger-%d", prefix, i), "stranger", server, i%2 == 0))
	}
	s.apply(manifests.String())
}

// obeyed waits for the end of the pods, and checks that each friend connected with its first packet and no stranger
// did.
func (s *session) obeyed() {
	s.Helper()
	s.eventually("the pods end", func() error {
		for _, p := range s.pods("first=packet") {
			if p.Status.Phase != corev1.PodSucceeded {
				return fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
			}
		}
		return nil
	})
	for _, p := range s.pods("first=packet") {
		log := s.kubectl("logs", p.Name, "-c", "main")
		if p.Labels["role"] == "friend" && log != "connected\nagain 0\n" {
			s.Errorf("%s: an allowed connection did not succeed with its first packet: %q", p.Name, log)
		}
		if p.Labels["role"] == "stranger" && strings.Contains(log, "connected") {
			s.Errorf("%s: a forbidden connection succeeded", p.Name)
		}
	}
}

// TestFirstPacket: a pod's policies are in force before its first container starts, also if the process dies while
// pods start.
func TestFirstPacket(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.112.0.0/16"))
	s.apply(backends)
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	server := s.pods("app=who")[0].Status.PodIP
	s.apply(onlyToWho)
	s.beginners("one", server)
	s.obeyed()
	for i, delay := range []time.Duration{100, 200, 350} {
		s.beginners(fmt.Sprintf("killed-%d", i), server)
		time.Sleep(delay * time.Millisecond)
		s.cluster.kill(t)
		s.cluster.again(t)
		s.obeyed()
	}
}
