// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/test/servers"
)

// TestUpstreamGetsANode: Kindred's node joins upstream's control plane with a token of "kindred token create", and runs pods there.
func TestUpstreamGetsANode(t *testing.T) {
	needUpstream(t)
	needContainers(t)
	l := newLAN(t)
	programs, err := servers.BuildControlPlane(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{dir: t.TempDir(), home: t.TempDir()}
	server, err := programs.StartAt(t.Context(), c.dir, netip.MustParseAddr(l.host), netip.MustParsePrefix("10.244.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	if err := os.Symlink(server.Kubeconfig, c.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	s := newSession(t, c)
	m := l.machine(5)
	m.resetAfterwards()
	m.join(append(s.invitation(), "--node-name", "kindred")...)
	m.loadImages()
	s.eventually("the agent's server has a certificate", func() error { // upstream leaves the decision to an administrator
		for _, name := range strings.Fields(s.jsonpath(`{.items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")].metadata.name}`, "csr")) {
			s.kubectl("certificate", "approve", name)
		}
		if r := s.try("get", "--raw", "/api/v1/nodes/kindred/proxy/healthz"); r.out != "ok" {
			return fmt.Errorf("%q, %s", r.out, r.err)
		}
		return nil
	})
	s.runsOn("kindred", "one")
	s.runsOn("kindred", "two")
	s.kubectl("expose", "pod", "one", "--port=80", "--target-port=8080")
	s.reaches("two", s.pod("one").Status.PodIP+":8080", "one")
	s.reaches("two", s.jsonpath("{.spec.clusterIP}", "service", "one")+":80", "one")
	s.contains(s.kubectl("logs", "one"), "served by one")
	s.kubectl("create", "deployment", "web", "--image="+image, "--replicas=2", "--", "sleep", "3600")
	s.rolledOut("web")
	s.kubectl("delete", "deployment,pod", "--all")
	s.eventually("the pods are gone", func() error {
		if left := s.pods(""); len(left) > 0 {
			return fmt.Errorf("%d are left", len(left))
		}
		return nil
	})
	if r := m.run("leave", "--force"); r.code != 0 {
		t.Errorf("leave: %d, %q, %q", r.code, r.out, r.err)
	}
}
