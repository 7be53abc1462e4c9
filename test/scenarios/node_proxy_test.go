// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"strings"
	"testing"
)

// TestNodeProxy: the API server connects clients to the node's agent and to other ports of the node, for users who may.
func TestNodeProxy(t *testing.T) {
	s := withNode(t)
	node := s.nodes()[0]
	port := s.jsonpath("{.status.daemonEndpoints.kubeletEndpoint.Port}", "node", node)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: on-node}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "` + image + `"
    command: [sh, -c, "mkdir /www; echo on the node > /www/page; exec httpd -f -p 18093 -h /www"]
    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 18093}}
`)
	s.ready("on-node")
	path := func(id, path string) string { return "/api/v1/nodes/" + id + "/proxy/" + path }
	for _, id := range []string{node, node + ":" + port, "https:" + node + ":" + port} {
		s.prints("ok", "get", "--raw", path(id, "healthz"))
	}
	if pods := s.kubectl("get", "--raw", path(node, "pods")); !containsAll(pods, `"kind":"PodList"`, `"name":"on-node"`) {
		t.Errorf("the agent's pods: %s", pods)
	}
	s.prints("on the node\n", "get", "--raw", path("http:"+node+":18093", "page"))
	s.prints("on the node\n", "get", "--raw", path(node+":18093", "page"))

	s.refused([]string{"nodes \"nobody\" not found"}, "get", "--raw", path("nobody", "healthz"))
	s.refused([]string{"Forbidden", "nodes/proxy"}, "get", "--raw", path(node, "healthz"), "--as", "visitor")
	if r := s.try("get", "--raw", path("https:"+node+":18093", "page")); r.code == 0 || strings.Contains(r.out, "on the node") {
		t.Errorf("a server without TLS answers over TLS: %s%s", r.out, r.err)
	}
}
