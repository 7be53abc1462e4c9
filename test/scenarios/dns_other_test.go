// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/test/images"
)

// programImage builds the program of a package in this folder, and returns the archive of an image of its name with it.
func programImage(t *testing.T, name string) (file string) {
	t.Helper()
	dir := t.TempDir()
	program, file := filepath.Join(dir, name), filepath.Join(dir, name+".tar")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // static, because an image has no libraries
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := images.Program(file, program, "docker.io/library/"+name+":v1"); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAnotherDNSServer: with --no-dns, pods use the DNS server of a user, a pod behind the Service kube-dns, at the address
// that pods have in resolv.conf before the Service exists.
func TestAnotherDNSServer(t *testing.T) {
	c := ownClusterWithNode(t, "--no-dns", "--service-cidr", "10.118.0.0/16")
	if r := c.run("image", "load", programImage(t, "nameserver")); r.code != 0 {
		t.Fatalf("kindred image load: %s", r.err)
	}
	s := newSession(t, c)
	s.kubectl("run", "client", "--image="+image, "--", "sleep", "3600")
	s.ready("client")
	resolvConf := s.kubectl("exec", "client", "--", "cat", "/etc/resolv.conf")
	nameservers := 0
	for line := range strings.Lines(resolvConf) {
		if strings.HasPrefix(line, "nameserver") {
			nameservers++
		}
	}
	if nameservers != 1 || !containsAll(resolvConf, "nameserver 10.118.0.10\n", "search "+s.namespace+".svc.cluster.local svc.cluster.local cluster.local", "ndots:5") {
		t.Errorf("resolv.conf:\n%s", resolvConf)
	}
	lookup := func() string {
		r := s.try("exec", "client", "--", "nslookup", "-type=a", "any.name.example")
		return r.out + r.err
	}
	// Nothing serves DNS yet, also not Kindred.
	if out := lookup(); strings.Contains(out, "Name:") {
		t.Errorf("without a DNS server: %s", out)
	}

	system := inNamespace(t, c, "kube-system")
	system.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: nameserver, labels: {k8s-app: kube-dns}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "%s", args: [":53", 192.0.2.53]}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns}
spec: {clusterIP: 10.118.0.10, selector: {k8s-app: kube-dns}, ports: [{name: dns, port: 53, protocol: UDP}]}
`, "nameserver:v1"))
	system.ready("nameserver")
	resolves := func(want ...string) {
		t.Helper()
		s.eventually("a lookup", func() error {
			if out := lookup(); !containsAll(out, want...) {
				return fmt.Errorf("got %s", out)
			}
			return nil
		})
	}
	resolves("10.118.0.10:53", "any.name.example", "Address: 192.0.2.53")
	// Through the resolver of the C library's kind as well, with the search list.
	s.contains(s.try("exec", "client", "--", "ping", "-c", "1", "-W", "1", "short").out, "PING short (192.0.2.53)")

	// Kindred leaves the Service alone when it starts again, and the user's server still answers.
	uid := system.uid("service/kube-dns")
	c.kill(t)
	c.again(t)
	if after := system.uid("service/kube-dns"); after != uid {
		t.Errorf("the Service has the UID %s, had %s", after, uid)
	}
	resolves("Address: 192.0.2.53")
}
