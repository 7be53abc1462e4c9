// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	google "google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	criclient "k8s.io/cri-client/pkg"
	"k8s.io/utils/clock"
	utilexec "k8s.io/utils/exec"

	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// commands is a runtime that answers one command in each container.
type commands func(command []string, timeout time.Duration) (stdout, stderr string, err error)

func (c commands) ExecSync(_ context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, error) {
	if id != "id" {
		return nil, nil, fmt.Errorf("no container %s", id)
	}
	stdout, stderr, err := c(command, timeout)
	return []byte(stdout), []byte(stderr), err
}

func attempt(t *testing.T, runtime Runtime, container *v1.Container, probe *v1.Probe) (outcome, string, error) {
	t.Helper()
	m := New(context.Background(), Options{Runtime: runtime, Clock: clock.RealClock{}})
	if container == nil {
		container = &v1.Container{}
	}
	pod := &v1.Pod{Status: v1.PodStatus{PodIP: "127.0.0.1"}}
	return m.runProbe(context.Background(), &nodepod.ProbeTarget{Pod: pod, Container: container, ContainerID: "id"}, probe)
}

func check(t *testing.T, found outcome, output string, err error, want outcome, wantOutput string) {
	t.Helper()
	if found != want || output != wantOutput || err != nil {
		t.Errorf("got %s %q, %v; want %s %q", found, output, err, want, wantOutput)
	}
}

func TestExec(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		want   outcome
		output string
	}{
		{"exit 0", nil, success, "outerr"},
		{"exit 3", utilexec.CodeExitError{Err: errors.New("exit"), Code: 3}, failure, "outerr"},
		{"too slow", fmt.Errorf("%w: x timed out after 2s", criclient.ErrCommandTimedOut), failure, "command timed out: x timed out after 2s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runtime := commands(func(command []string, timeout time.Duration) (string, string, error) {
				if got := strings.Join(command, " "); got != "say hello $(REF) $(NO)" || timeout != 2*time.Second {
					t.Errorf("ran %q with %v", got, timeout)
				}
				return "out", "err", tc.err
			})
			container := &v1.Container{Env: []v1.EnvVar{{Name: "WORD", Value: "hello"}, {Name: "REF", Value: "$(REF)"}}}
			found, output, err := attempt(t, runtime, container, &v1.Probe{TimeoutSeconds: 2, ProbeHandler: v1.ProbeHandler{
				Exec: &v1.ExecAction{Command: []string{"say", "$(WORD)", "$(REF)", "$(NO)"}}}})
			check(t, found, output, err, tc.want, tc.output)
		})
	}
	broken := commands(func([]string, time.Duration) (string, string, error) { return "", "", errors.New("no runtime") })
	found, _, err := attempt(t, broken, nil, &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{}}})
	if found != unknown || err == nil {
		t.Errorf("a broken runtime: %s, %v", found, err)
	}
}

func portNumber(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func httpProbe(port int, change ...func(*v1.HTTPGetAction)) *v1.Probe {
	action := &v1.HTTPGetAction{Port: intstr.FromInt32(int32(port)), Path: "/"}
	for _, c := range change {
		c(action)
	}
	return &v1.Probe{TimeoutSeconds: 1, ProbeHandler: v1.ProbeHandler{HTTPGet: action}}
}

func TestHTTP(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed a redirect to another host") }))
	defer elsewhere.Close()
	mux := http.NewServeMux()
	for _, code := range []int{200, 204, 400, 404, 500} {
		mux.HandleFunc(fmt.Sprintf("/%d", code), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			if code != 204 {
				_, _ = io.WriteString(w, "body")
			}
		})
	}
	mux.HandleFunc("/near", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/200", http.StatusFound) })
	mux.HandleFunc("/far", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1))
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, "there")
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 3*maxOutput)) })
	mux.HandleFunc("/query", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.RawQuery) })
	for _, scheme := range []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS} {
		server := httptest.NewUnstartedServer(mux)
		if scheme == v1.URISchemeHTTPS {
			server.StartTLS() // with a self-signed certificate
		} else {
			server.Start()
		}
		defer server.Close()
		port := portNumber(t, server.URL)
		for path, want := range map[string]struct {
			outcome outcome
			output  string
		}{
			"/200":       {success, "body"},
			"/204":       {success, ""},
			"/near":      {success, "body"},
			"/far":       {warning, "Probe terminated redirects, Response body: there"},
			"/400":       {failure, "HTTP probe failed with statuscode: 400"},
			"/404":       {failure, "HTTP probe failed with statuscode: 404"},
			"/500":       {failure, "HTTP probe failed with statuscode: 500"},
			"/big":       {success, string(make([]byte, maxOutput))},
			"/query?a=b": {success, "a=b"},
			"/round":     {failure, `Get "/round": stopped after 10 redirects`},
		} {
			found, output, err := attempt(t, nil, nil, httpProbe(port, func(a *v1.HTTPGetAction) { a.Path, a.Scheme = path, scheme }))
			if found != want.outcome || output != want.output || err != nil {
				t.Errorf("%s %s: got %s %.60q, %v", scheme, path, found, output, err)
			}
		}
	}
}

func TestHTTPTimeout(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	found, output, err := attempt(t, nil, nil, httpProbe(portNumber(t, server.URL)))
	if found != failure || err != nil || !strings.Contains(output, "Client.Timeout exceeded while awaiting headers") {
		t.Errorf("got %s %q, %v", found, output, err)
	}
}

func TestHTTPHeaders(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers []v1.HTTPHeader
		want    http.Header
		host    string
	}{
		{"by default", nil, http.Header{"User-Agent": {userAgent}, "Accept": {"*/*"}}, ""},
		{"replaced", []v1.HTTPHeader{{Name: "User-Agent", Value: "me"}, {Name: "Accept", Value: "text/plain"}},
			http.Header{"User-Agent": {"me"}, "Accept": {"text/plain"}}, ""},
		{"removed by an empty value", []v1.HTTPHeader{{Name: "User-Agent", Value: ""}, {Name: "Accept", Value: ""}}, http.Header{}, ""},
		{"host header, and a repeated header", []v1.HTTPHeader{{Name: "Host", Value: "example.com"}, {Name: "X", Value: "1"}, {Name: "X", Value: "2"}},
			http.Header{"User-Agent": {userAgent}, "Accept": {"*/*"}, "X": {"1", "2"}}, "example.com"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				r.Header.Del("Connection")
				if fmt.Sprint(r.Header) != fmt.Sprint(tc.want) {
					t.Errorf("headers %v, want %v", r.Header, tc.want)
				}
				if tc.host != "" && r.Host != tc.host {
					t.Errorf("host %s", r.Host)
				}
			}))
			defer server.Close()
			found, output, err := attempt(t, nil, nil, httpProbe(portNumber(t, server.URL), func(a *v1.HTTPGetAction) { a.HTTPHeaders = tc.headers }))
			check(t, found, output, err, success, "")
		})
	}
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := portNumber(t, listener.Addr().String())
	probe := &v1.Probe{TimeoutSeconds: 1, ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}}
	found, output, err := attempt(t, nil, nil, probe)
	check(t, found, output, err, success, "")
	_ = listener.Close()
	found, output, err = attempt(t, nil, nil, probe)
	check(t, found, output, err, failure, fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", port))
	probe.TCPSocket.Port = intstr.FromString("none")
	if found, _, err = attempt(t, nil, nil, probe); found != unknown || err == nil {
		t.Errorf("got %s, %v", found, err)
	}
}

func TestGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := portNumber(t, listener.Addr().String())
	server := google.NewServer()
	states := health.NewServer()
	states.SetServingStatus("sick", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(server, states)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	probe := func(service string, port int) (outcome, string, error) {
		return attempt(t, nil, nil, &v1.Probe{TimeoutSeconds: 1, ProbeHandler: v1.ProbeHandler{
			GRPC: &v1.GRPCAction{Port: int32(port), Service: &service}}})
	}
	found, output, err := probe("", port)
	check(t, found, output, err, success, "service healthy")
	found, output, err = probe("sick", port)
	check(t, found, output, err, failure, `service unhealthy (responded with "NOT_SERVING")`)
	found, output, err = probe("none", port)
	check(t, found, output, err, failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service")

	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := google.NewServer()
	go func() { _ = other.Serve(bare) }()
	t.Cleanup(other.Stop)
	found, output, err = probe("", portNumber(t, bare.Addr().String()))
	check(t, found, output, err, failure,
		"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health")

	server.Stop()
	found, output, err = probe("", port)
	check(t, found, output, err, failure, fmt.Sprintf("timeout: failed to connect service \"127.0.0.1:%d\" within 1s: context deadline exceeded", port))
}
