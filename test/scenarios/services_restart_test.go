// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// echo is a pod that returns each line that it receives, behind a Service.
const echo = `
apiVersion: v1
kind: Pod
metadata: {name: echo, labels: {app: echo}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "` + image + `"
    command: [nc, -ll, -p, "7007", -e, cat]
    readinessProbe: {periodSeconds: 1, tcpSocket: {port: 7007}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  selector: {app: echo}
  ports: [{port: 7, targetPort: 7007}]
`

const (
	// connectLimit is less than the time after which Linux sends a SYN again (1 s), so that a lost SYN fails.
	connectLimit = 900 * time.Millisecond
	// responseLimit is long, for busy machines.
	responseLimit = 10 * time.Second
	// pause is the time between two requests of a client.
	pause = 3 * time.Millisecond
)

// traffic repeats a request until the scenario ends, and records failures.
type traffic struct {
	what     string
	mu       sync.Mutex
	answered int
	failures []string
}

// newTraffic starts to repeat a request. It stops at the first failure if the request cannot be repeated.
func newTraffic(t *testing.T, what string, repeatable bool, request func() error) *traffic {
	t.Helper()
	f := &traffic{what: what}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for err := error(nil); err == nil || repeatable; {
			began := time.Now()
			err = request()
			f.record(began, err)
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return f
}

func (f *traffic) record(began time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.answered++
		return
	}
	f.failures = append(f.failures, fmt.Sprintf("%s, after %v: %v", began.Format("15:04:05.000"), time.Since(began), err))
}

// flows waits until so many more requests have been answered.
func (s *session) flows(f *traffic, requests int) {
	s.Helper()
	first, _ := f.count()
	s.eventually(f.what, func() error {
		answered, failures := f.count()
		if n := answered - first; n < requests {
			return fmt.Errorf("%d of %d requests answered; failures: %v", n, requests, failures)
		}
		return nil
	})
}

// count returns how many requests have been answered since the last check, and the failures.
func (f *traffic) count() (answered int, failures []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answered, slices.Clone(f.failures)
}

// check fails if a request failed, and starts a new record.
func (f *traffic) check(t *testing.T, during string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("%s: %s: %d requests answered", during, f.what, f.answered)
	if len(f.failures) > 0 {
		t.Errorf("%s: %s: %d of %d requests failed:\n%s", during, f.what, len(f.failures), f.answered+len(f.failures), strings.Join(f.failures, "\n"))
	}
	f.answered, f.failures = 0, nil
}

// visit sends a request on a new connection, which one of the pods answers with its name. It closes the connection with
// RST. Otherwise the pod would keep thousands of connections in TIME_WAIT, some of them translated from 127.0.0.1, and
// would ignore the first SYN of another client that gets the port of one of them (RFC 7323, section 5.3).
func visit(address string) error {
	conn, err := net.DialTimeout("tcp", address, connectLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.SetDeadline(time.Now().Add(responseLimit))
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	response, err := io.ReadAll(conn)
	if err == nil && !containsAll(string(response), "200 OK", "who-") {
		err = fmt.Errorf("response %q", response)
	}
	return err
}

// conversation returns a function that sends a line on a connection to the Service echo, and reads it back. It is
// always the same connection.
func conversation(t *testing.T, address string) func() error {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, connectLimit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	lines, n := bufio.NewReader(conn), 0
	return func() error {
		n++
		sent := fmt.Sprintf("line %d\n", n)
		_ = conn.SetDeadline(time.Now().Add(responseLimit))
		if _, err := io.WriteString(conn, sent); err != nil {
			return err
		}
		received, err := lines.ReadString('\n')
		if err == nil && received != sent {
			err = fmt.Errorf("sent %q, received %q", sent, received)
		}
		return err
	}
}

// TestServicesDuringRestarts: while the process is killed, terminated or upgraded, and starts again, each new connection
// to a Service succeeds, and an established one is never interrupted.
func TestServicesDuringRestarts(t *testing.T) {
	s := newSession(t, ownClusterWithNode(t, "--service-cidr", "10.117.0.0/16"))
	c := s.cluster
	s.apply(backends + "---" + echo)
	s.rolledOut("who")
	s.ready("echo")
	ip, echoIP := s.jsonpath("{.spec.clusterIP}", "service", "who"), s.jsonpath("{.spec.clusterIP}", "service", "echo")
	nodePort := "127.0.0.1:" + s.jsonpath("{.spec.ports[0].nodePort}", "service", "who")
	s.eventually("the Services have endpoints", func() error {
		conn, err := net.DialTimeout("tcp", echoIP+":7", connectLimit)
		if err == nil {
			err = conn.Close()
		}
		return errors.Join(err, visit(ip+":80"), visit(nodePort))
	})
	before := s.lives("")
	all := []*traffic{
		newTraffic(t, "new connections to the ClusterIP", true, func() error { return visit(ip + ":80") }),
		newTraffic(t, "new connections to the node port", true, func() error { return visit(nodePort) }),
		newTraffic(t, "the established connection", false, conversation(t, echoIP+":7")),
	}
	flow := func() {
		t.Helper()
		for _, f := range all {
			s.flows(f, 50)
		}
	}
	flow()
	upgrade := copyOfBinary(t)
	for round := range 2 {
		for _, tt := range []struct {
			during string
			stop   func(*testing.T)
			under  []string
		}{
			{"SIGKILL", c.kill, nil},
			{"SIGTERM", c.terminate, nil},
			{"upgrade", c.terminate, upgrade},
			{"SIGKILL of the upgraded process", c.kill, upgrade},
		} {
			c.under = tt.under
			tt.stop(t)
			flow()
			c.again(t)
			flow()
			// The rules are reconciled after the start as well.
			s.kubectl("annotate", "service", "who", "echo", "--overwrite", fmt.Sprintf("example.com/round=%d %s", round, tt.during))
			flow()
			for _, f := range all {
				f.check(t, fmt.Sprintf("round %d: %s", round+1, tt.during))
			}
		}
	}
	s.stayed(before, "")
}

// copyOfBinary returns a command line that runs a copy of the program under test, at another path, with the arguments of
// the command line that follows.
func copyOfBinary(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kindred-next")
	if err := os.WriteFile(file, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"sh", "-c", `shift; exec "$0" "$@"`, file}
}
