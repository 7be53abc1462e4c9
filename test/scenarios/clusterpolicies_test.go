// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// tiers isolates the pods of who by a NetworkPolicy, denies their clients by a policy of the Baseline tier, and has a part that
// is not supported.
const tiers = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: baseline}
spec:
  tier: Baseline
  priority: 10
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: who}}}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: domains}
spec:
  tier: Admin
  priority: 1000
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: nothing}}}}
  egress: [{action: Accept, to: [{domainNames: [example.com]}]}]
`

const allowAll = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: all}
spec: {podSelector: {matchLabels: {app: who}}, policyTypes: [Ingress], ingress: [{}]}
`

const adminDeny = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: admin}
spec:
  tier: Admin
  priority: 5
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: who}}}}
  ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 8080}}}]}]
`

const clientPod = `
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "` + image + `", command: [sleep, "100000"]}]
`

// TestClusterNetworkPolicy: the tiers apply in their order, survive a restart, and what is not supported is an event. Without
// the flag, there is no such kind.
func TestClusterNetworkPolicy(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t, "--cluster-network-policies"))
	s.apply(backends + "---" + clientPod)
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	s.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
	server := s.pods("app=who")[0].Status.PodIP
	reaches := func(want bool) {
		t.Helper()
		s.eventually(fmt.Sprintf("the client reaches the server: %t", want), func() error {
			r := s.try("exec", "client", "--", "timeout", "1", "wget", "-q", "-O", "/dev/null", "http://"+server+":8080")
			if (r.code == 0) != want {
				return errors.New(r.out + r.err)
			}
			return nil
		})
	}
	reaches(true)
	s.apply(tiers)
	reaches(false)
	s.apply(allowAll)
	reaches(true)
	s.apply(adminDeny)
	reaches(false)
	s.eventually("an event on the policy with domains", func() error {
		out := s.kubectl("get", "events", "-n", "default", "--field-selector", "involvedObject.name=domains,reason=InvalidPolicy", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "spec.egress[0]") || !strings.Contains(out, "domainNames are not supported; the rule accepts nothing") {
			return fmt.Errorf("events: %q", out)
		}
		return nil
	})
	s.cluster.kill(t)
	s.cluster.again(t)
	reaches(false)
	s.kubectl("delete", "clusternetworkpolicy", "admin")
	reaches(true)
	s.kubectl("delete", "networkpolicy", "all")
	reaches(false)
	s.kubectl("delete", "cnp", "baseline", "--timeout=10s")
	reaches(true)
}
