// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestBandwidth: the annotations limit what a pod receives and sends, also after SIGKILL. A value that is not valid keeps
// the pod from starting, with an event, as with upstream's plugin.
func TestBandwidth(t *testing.T) {
	c := ownClusterWithNode(t)
	s := newSession(t, c)
	s.apply(`
apiVersion: v1
kind: Pod
metadata:
  name: slow
  annotations: {kubernetes.io/ingress-bandwidth: 10M, kubernetes.io/egress-bandwidth: 20M}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: sink, image: "` + image + `", command: [sh, -c, "while :; do nc -l -p 9000 >/dev/null; done"]}
  - {name: source, image: "` + image + `", command: [sh, -c, "while :; do nc -l -p 9001 </dev/zero; done"]}
`)
	s.kubectl("wait", "--for=condition=Ready", "pod/slow", "--timeout=60s")
	ip := s.jsonpath("{.status.podIP}", "pod", "slow")
	// rate returns the rate of a connection in Mbit/s, after its beginning.
	rate := func(port string, move func(net.Conn, []byte) (int, error)) float64 {
		t.Helper()
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip, port), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		buffer := make([]byte, 16<<10)
		var total int
		for began, skip := time.Now(), 2*time.Second; time.Since(began) < 6*time.Second; {
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			n, err := move(conn, buffer)
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(began) > skip {
				total += n
			}
		}
		return float64(total) * 8 / 4 / 1e6
	}
	c.kill(t)
	in := rate("9000", func(c net.Conn, b []byte) (int, error) { return c.Write(b) })
	out := rate("9001", func(c net.Conn, b []byte) (int, error) { return io.ReadAtLeast(c, b, 1) })
	t.Logf("in %.1f Mbit/s, out %.1f Mbit/s", in, out)
	if in < 8 || in > 12 {
		t.Errorf("the pod receives %.1f Mbit/s, want 10", in)
	}
	if out < 16 || out > 24 {
		t.Errorf("the pod sends %.1f Mbit/s, want 20", out)
	}
	c.again(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata:
  name: wrong
  annotations: {kubernetes.io/egress-bandwidth: "5"}
spec:
  containers: [{name: c, image: "` + image + `", command: [sleep, "60"]}]
`)
	s.eventually("an event", func() error {
		events := s.kubectl("get", "events", "--field-selector", "involvedObject.name=wrong,type=Warning", "-o", "jsonpath={.items[*].reason} {.items[*].message}")
		if !strings.Contains(events, "FailedCreatePodSandBox") || !strings.Contains(events, "resource is unreasonably small (< 1kbit)") {
			return fmt.Errorf("%s", events)
		}
		return nil
	})
}
