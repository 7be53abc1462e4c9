// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDNS resolves names in pods, through the ClusterIP of the DNS Service: of a StatefulSet, of
// Services, of a hosts file. It works again after SIGKILL, and --no-dns removes it.
func TestDNS(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("192.0.2.7 printer.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := ownClusterWithNode(t, "--dns-hosts", hosts)
	s := newSession(t, c)
	system := inNamespace(t, c, "kube-system")
	server := dnsServer(s)
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: nodes}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: paper}
spec: {type: ExternalName, externalName: printer.example}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: nodes
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: "%s", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]}]
`, image))
	s.setRolledOut()
	first, second := s.pod("web-0").Status.PodIP, s.pod("web-1").Status.PodIP
	clusterIP := s.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	resolves := func(kind, name string, want ...string) {
		t.Helper()
		s.eventually(name, func() error {
			r := s.try("exec", "web-0", "--", "nslookup", "-type="+kind, name)
			for _, part := range want {
				if !strings.Contains(r.out, part) {
					return fmt.Errorf("no %q in %q, %q", part, r.out, r.err)
				}
			}
			return nil
		})
	}
	octets := strings.Split(first, ".")
	slices.Reverse(octets)
	reversed := strings.Join(octets, ".")
	services := "." + s.namespace + ".svc.cluster.local"
	all := func() {
		t.Helper()
		resolves("a", "web-1.nodes"+services, "Address: "+second)
		resolves("a", "nodes"+services, "Address: "+first, "Address: "+second)
		resolves("a", "web"+services, "Address: "+clusterIP)
		resolves("srv", "_http._tcp.web"+services, " 80 web"+services)
		resolves("ptr", reversed+".in-addr.arpa", "name = web-0.nodes"+services)
		resolves("a", "printer.example", "Address: 192.0.2.7")
		resolves("a", "paper"+services, "canonical name = printer.example", "Address: 192.0.2.7")
		resolves("a", "none"+services, "NXDOMAIN")
	}
	all()

	c.kill(t)
	if err := c.start("--dns-hosts", hosts); err != nil {
		t.Fatal(err)
	}
	if again := dnsServer(s); again != server {
		t.Errorf("the server is at %s, was at %s", again, server)
	}
	all()
	s.kubectl("scale", "statefulset", "web", "--replicas", "1")
	resolves("a", "web-1.nodes"+services, "NXDOMAIN")

	if err := c.signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.start("--no-dns"); err != nil {
		t.Fatal(err)
	}
	system.prints("", "get", "services,endpointslices", "-o", "name")
	system.apply(`
apiVersion: v1
kind: Service
metadata: {name: kube-dns}
spec: {clusterIP: 10.96.0.10, selector: {k8s-app: kube-dns}, ports: [{name: dns, port: 53, protocol: UDP}]}
`)
	if err := c.signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	system.prints("kube-dns", "get", "service", "kube-dns", "-o", "jsonpath={.metadata.name}{.metadata.labels}")
	system.prints("", "get", "endpointslices", "-l", "endpointslice.kubernetes.io/managed-by=dns.kindred.dev", "-o", "name")
}

// dnsServer returns the address of the node's DNS server.
func dnsServer(s *session) (address string) {
	s.Helper()
	s.eventually("the DNS server is published", func() error {
		list, err := s.cluster.client(s.T).DiscoveryV1().EndpointSlices("kube-system").List(s.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kube-dns"})
		if err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d slices, %v", len(list.Items), err)
		}
		slice := list.Items[0]
		if len(slice.Ports) != 2 || *slice.Ports[0].Port != 53 {
			return fmt.Errorf("ports %v", slice.Ports)
		}
		address = slice.Endpoints[0].Addresses[0]
		return nil
	})
	return address
}
