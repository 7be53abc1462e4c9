// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRuntimeOfTheUser: with a container runtime that Kindred did not start, and whose pod network it does not know, pods
// reach Services and resolve names, and NetworkPolicies apply. The DNS server is not open to other machines. "kindred reset" leaves nothing of the pods.
func TestRuntimeOfTheUser(t *testing.T) {
	// The runtime is that of a cluster which has stopped.
	other := ownClusterWithNode(t)
	runtime := runtimeEndpoint(t, other)
	other.terminate(t)
	var pods []string
	t.Cleanup(func() { // after the cluster was reset
		if left := footprintOf(t, pods); len(left.cgroups) > 0 {
			t.Errorf("cgroups of the pods are left: %q", left.cgroups)
		}
	})
	c := ownCluster(t, "--container-runtime-endpoint", runtime, "--service-cidr", "10.97.0.0/16")
	s := newSession(t, c)
	s.apply(`
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "` + image + `", command: [httpd, -f, -p, "8080", -h, /etc]}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "` + image + `", command: [sleep, "3600"]}]
`)
	s.kubectl("wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=60s")
	pods = strings.Fields(s.jsonpath("{.items[*].metadata.uid}", "pods"))
	address := s.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	for want, command := range map[string][]string{
		"Address: " + address: {"nslookup", "-type=a", "web." + s.namespace + ".svc.cluster.local"},
		"root:":               {"timeout", "2", "wget", "-q", "-O", "-", "http://" + address + "/passwd"},
	} {
		s.eventually(strings.Join(command, " "), func() error {
			if r := s.try(append([]string{"exec", "client", "--"}, command...)...); !strings.Contains(r.out, want) {
				return fmt.Errorf("no %q in %q, %q", want, r.out, r.err)
			}
			return nil
		})
	}
	endpoint := inNamespace(t, c, "kube-system").kubectl("get", "endpointslices", "-l", "kubernetes.io/service-name=kube-dns", "-o",
		"jsonpath={.items[0].endpoints[0].addresses[0]}:{.items[0].ports[?(@.protocol=='TCP')].port}")
	if conn, err := net.DialTimeout("tcp", endpoint, 500*time.Millisecond); err == nil {
		_ = conn.Close()
		t.Errorf("the DNS server is open at %s", endpoint)
	}
	s.apply(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}
`)
	s.eventually("the policy", func() error {
		if r := s.try("exec", "client", "--", "timeout", "1", "wget", "-q", "-O", "-", "http://"+address+"/passwd"); r.code == 0 {
			return errors.New("the client still reaches the Service")
		}
		return nil
	})
}

// runtimeEndpoint returns the CRI endpoint of a cluster's private containerd.
func runtimeEndpoint(t *testing.T, c *cluster) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(c.dir, "kindred.json"))
	if err != nil {
		t.Fatal(err)
	}
	var instance struct{ ContainerRuntime string }
	if err := json.Unmarshal(content, &instance); err != nil {
		t.Fatal(err)
	}
	return instance.ContainerRuntime
}
