// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withHostPort is a pod that answers HTTP requests to a host port with its name.
func withHostPort(name, hostIP string, hostPort int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "%s"
    command: [sh, -c, "mkdir /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"]
    ports: [{containerPort: 8080, hostPort: %d, hostIP: "%s"}]
    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8080}}
`, name, image, hostPort, hostIP)
}

// TestHostPorts: a pod is reached by its host port, from the machine and from pods, as soon as it is ready and as long
// as it exists. Connections outlive the process.
func TestHostPorts(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.112.0.0/16"))
	node := s.jsonpath("{.status.addresses[0].address}", "node", s.nodes()[0])
	const loopback = "127.0.0.1"
	s.apply(withHostPort("one", "", 18080))
	s.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s")
	s.wantBody("one", node+":18080")
	s.wantBody("one", loopback+":18080")
	s.apply(withHostPort("two", loopback, 18081) + "---" + withHostPort("three", node, 18081))
	s.kubectl("wait", "--for=condition=Ready", "pod/two", "pod/three", "--timeout=60s")
	s.wantBody("two", loopback+":18081")
	s.wantBody("three", node+":18081")
	for _, from := range []string{"one", "two", "three"} {
		s.prints("one\n", "exec", from, "--", "wget", "-q", "-O", "-", "http://"+node+":18080")
		s.prints("three\n", "exec", from, "--", "wget", "-q", "-O", "-", "http://"+node+":18081")
	}

	// A pod that wants the port at all addresses waits for both.
	s.apply(withHostPort("waits", "", 18081))
	s.eventually("the scheduler finds no port", func() error {
		if message := s.jsonpath("{.status.conditions[0].message}", "pod", "waits"); !strings.Contains(message, "didn't have free ports") {
			return fmt.Errorf("condition %q", message)
		}
		return nil
	})

	// The process dies: old and new connections continue, before and after the next one starts.
	kept, err := net.Dial("tcp", node+":18080")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	s.cluster.kill(t)
	s.wantBody("one", node+":18080")
	s.cluster.again(t)
	s.wantBody("two", loopback+":18081")
	fmt.Fprint(kept, "GET / HTTP/1.0\r\n\r\n")
	_ = kept.SetReadDeadline(time.Now().Add(5 * time.Second))
	if answer, err := io.ReadAll(kept); err != nil || !strings.HasSuffix(string(answer), "one\n") {
		t.Errorf("the connection from before got %q, %v", answer, err)
	}

	s.kubectl("delete", "pod", "two", "three")
	s.kubectl("wait", "--for=condition=Ready", "pod/waits", "--timeout=60s")
	s.wantBody("waits", loopback+":18081")
	s.wantBody("waits", node+":18081")
	s.kubectl("delete", "pod", "one")
	s.eventually("the port is free", func() error {
		if body, err := fetch(node + ":18080"); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("got %q, %v", body, err)
		}
		return nil
	})
}

// wantBody requires one request to be answered with a body.
func (s *session) wantBody(want, address string) {
	s.Helper()
	if body, err := fetch(address); err != nil || body != want {
		s.Errorf("%s: got %q, %v; want %q", address, body, err, want)
	}
}
