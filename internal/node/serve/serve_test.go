// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	return read(t, response, err)
}

func post(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Post(url, "", nil)
	return read(t, response, err)
}

func read(t *testing.T, response *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestPods(t *testing.T) {
	f := newFixture(t)
	code, body := get(t, f.client, f.server+"/pods")
	if code != 200 || !strings.HasPrefix(body, `{"kind":"PodList","apiVersion":"v1"`) || !strings.Contains(body, `"uid":"uid"`) {
		t.Errorf("got %d %s", code, body)
	}
}

func TestLogs(t *testing.T) {
	f := newFixture(t)
	for _, tc := range []struct {
		path string
		code int
		body string
	}{
		{"ns/p/c", 200, "one\ntwo\n"},
		{"ns/p/c?tailLines=1&timestamps=true", 200, "2030-01-01T00:00:02.000000000Z two\n"},
		{"ns/p/c?limitBytes=5", 200, "one\nt"},
		{"ns/p/c?stream=Stderr", 200, "two\n"},
		{"ns/p/c?sinceTime=2030-01-01T00:00:02Z", 200, "two\n"},
		{"ns/p/c?tailLines=-1", 422, `tailLines: invalid value "-1": must be a number of at least 0`},
		{"ns/p/c?limitBytes=0", 422, `limitBytes: invalid value "0": must be a number of at least 1`},
		{"ns/p/c?follow=perhaps", 422, `follow: invalid value "perhaps": must be a boolean`},
		{"ns/p/c?sinceSeconds=1&sinceTime=2030-01-01T00:00:02Z", 422, "at most one of `sinceTime` or `sinceSeconds` may be specified"},
		{"ns/none/c", 404, `pod "none" does not exist`},
		{"ns/p/none", 404, `container "none" not found in pod "p"`},
		{"ns/p/other", 400, `container "other" in pod "p" is not available`},
	} {
		if code, body := get(t, f.client, f.server+"/containerLogs/"+tc.path); code != tc.code || body != tc.body {
			t.Errorf("%s: got %d %q", tc.path, code, body)
		}
	}
}

func TestUnavailableLogs(t *testing.T) {
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	for _, tc := range []struct {
		state    v1.ContainerState
		previous bool
		want     string
	}{
		{waiting("ErrImagePull"), false, `container "c" in pod "p" is waiting to start: image can't be pulled`},
		{waiting("ImagePullBackOff"), false, `container "c" in pod "p" is waiting to start: trying and failing to pull image`},
		{waiting("ContainerCreating"), false, `container "c" in pod "p" is waiting to start: ContainerCreating`},
		{v1.ContainerState{}, false, `container "c" in pod "p" is waiting to start - no logs yet`},
		{v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}, false, `container "c" in pod "p" is terminated`},
		{v1.ContainerState{Running: &v1.ContainerStateRunning{}}, true, `previous terminated container "c" in pod "p" not found`},
	} {
		f := newFixture(t)
		f.node.current = nil
		f.node.pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: tc.state}}
		path := "/containerLogs/ns/p/c"
		if tc.previous {
			path += "?previous=true"
		}
		if code, body := get(t, f.client, f.server+path); code != 400 || body != tc.want {
			t.Errorf("got %d %q, want %q", code, body, tc.want)
		}
	}
}

func TestFollowLogs(t *testing.T) {
	f := newFixture(t)
	response, err := f.client.Get(f.server + "/containerLogs/ns/p/c?follow=true&tailLines=0")
	if err != nil {
		t.Fatal(err) // the response begins before the log has a line
	}
	defer response.Body.Close()
	f.log(t, "2030-01-01T00:00:03Z stdout F three\n")
	line := make([]byte, 6)
	if _, err := io.ReadFull(response.Body, line); err != nil || string(line) != "three\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	f.log(t, "2030-01-01T00:00:04Z stdout F four\n")
	f.node.stop()
	rest, err := io.ReadAll(response.Body)
	if err != nil || string(rest) != "four\n" {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestExecAndAttach(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"ns/p/c", "ns/p/uid/c"} {
		for _, protocol := range []string{"SPDY", "WebSocket v5", "WebSocket v4"} {
			for _, tc := range []struct{ verb, query, want, err string }{
				{"exec", "command=a&command=b+c&output=1&input=1", "id [a b c] tty=false\nhello", ""},
				{"exec", "command=fail&output=1&input=1", "id [fail] tty=false\nhello", "command terminated with exit code 7"},
				{"attach", "output=1&input=1", "id [attached] tty=false\nhello", ""},
			} {
				if protocol == "WebSocket v4" && tc.verb == "exec" {
					continue // before v5, stdin cannot be closed (KEP-4006)
				}
				t.Run(protocol+" "+tc.verb+" "+path, func(t *testing.T) {
					got, err := f.stream(t, protocol, f.server+"/"+tc.verb+"/"+path+"?"+tc.query)
					message := ""
					if err != nil {
						message = err.Error()
					}
					if got != tc.want || message != tc.err {
						t.Errorf("got %q, %q; want %q, %q", got, message, tc.want, tc.err)
					}
				})
			}
		}
	}
}

// stream runs a command with the input "hello" and returns its output.
func (f *fixture) stream(t *testing.T, protocol, target string) (string, error) {
	t.Helper()
	var executor remotecommand.Executor
	var err error
	switch protocol {
	case "SPDY":
		parsed, bad := url.Parse(target)
		if bad != nil {
			t.Fatal(bad)
		}
		executor, err = remotecommand.NewSPDYExecutor(f.config, "POST", parsed)
	case "WebSocket v5":
		executor, err = remotecommand.NewWebSocketExecutor(f.config, "GET", target)
	case "WebSocket v4":
		executor, err = remotecommand.NewWebSocketExecutorForProtocols(f.config, "GET", target, "v4.channel.k8s.io")
	}
	if err != nil {
		t.Fatal(err)
	}
	var out syncBuffer
	options := remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if protocol == "WebSocket v4" {
		// Stdin is never closed: read the output, then disconnect.
		go func() {
			for !strings.HasSuffix(out.String(), "hello") && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		if err := executor.StreamWithContext(ctx, options); !errors.Is(err, context.Canceled) {
			return out.String(), err
		}
		return out.String(), nil
	}
	err = executor.StreamWithContext(ctx, options)
	return out.String(), err
}

type syncBuffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

func TestStreamErrors(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]string{
		"/exec/ns/p/c?command=x":                   "400 you must specify at least 1 of stdin, stdout, stderr",
		"/exec/ns/none/c?command=x&output=1":       "404 pod does not exist",
		"/exec/ns/p/wrong/c?command=x&output=1":    "404 pod does not exist",
		"/exec/ns/p/other?command=x&output=1":      `500 container not found ("other")`,
		"/attach/ns/p/other?output=1":              `500 container not found ("other")`,
		"/portForward/ns/none":                     "404 pod does not exist",
		"/exec/ns/p/uid/c?command=x&output=1&no=1": "400 Upgrade request required",
	} {
		code, body := get(t, f.client, f.server+path)
		if got := fmt.Sprintf("%d %s", code, body); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestPortForward(t *testing.T) {
	f := newFixture(t)
	target, err := url.Parse(f.server + "/portForward/ns/p")
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(target, f.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("SPDY", func(t *testing.T) {
		forwarder, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", target),
			[]string{"0:80"}, nil, make(chan struct{}), io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		useForward(t, forwarder)
	})
	t.Run("WebSocket tunnel", func(t *testing.T) {
		forwarder, err := portforward.New(tunnel, []string{"0:80"}, nil, make(chan struct{}), io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		useForward(t, forwarder)
	})
}

func useForward(t *testing.T, forwarder *portforward.PortForwarder) {
	t.Helper()
	go func() {
		if err := forwarder.ForwardPorts(); err != nil && !errors.Is(err, portforward.ErrLostConnectionToPod) {
			t.Error(err)
		}
	}()
	t.Cleanup(forwarder.Close)
	select {
	case <-forwarder.Ready:
	case <-time.After(20 * time.Second):
		t.Fatal("port forwarding did not become ready")
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(connection)
	if err != nil || string(answer) != "sandbox:80 hello" {
		t.Errorf("got %q, %v", answer, err)
	}
}
