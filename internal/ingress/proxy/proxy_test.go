// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// bed is a proxy on loopback. Its Services are servers of the test.
type bed struct {
	*testing.T
	*Server
	services    map[string][]netip.AddrPort
	http, https uint16
}

func newBed(t *testing.T) *bed {
	b := &bed{T: t, services: map[string][]netip.AddrPort{}, http: freePort(t), https: freePort(t)}
	b.Server = New(Options{Address: loopback, Clock: clock.RealClock{}, Endpoints: func(service string, _ int32) []netip.AddrPort { return b.services[service] }})
	t.Cleanup(b.Close)
	return b
}

func freePort(t *testing.T) uint16 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return addressOf(l.Addr()).Port()
}

// service adds a server with a handler; its answers name the Service.
func (b *bed) service(name string, handler http.HandlerFunc) {
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	b.Cleanup(s.Close)
	b.services[name] = append(b.services[name], addressOf(s.Listener.Addr()))
}

func (b *bed) serve(listeners ...route.Listener) {
	b.Helper()
	if failed := b.Serve(b.Context(), route.New(listeners)); len(failed) > 0 {
		b.Fatal(failed)
	}
}

// rule sends all paths to an action.
func rule(a route.Action) []route.Rule { return []route.Rule{{Action: &a}} }

func to(service string, protocol route.BackendProtocol) []route.Backend {
	return []route.Backend{{Service: service, Protocol: protocol, Weight: 1}}
}

// get asks the HTTP port and returns the status and body.
func (b *bed) get(path string, change func(*http.Request)) (*http.Response, string) {
	b.Helper()
	r, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d%s", b.http, path), nil)
	if err != nil {
		b.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	return b.do(&http.Transport{DisableKeepAlives: true}, r)
}

func (b *bed) do(transport *http.Transport, r *http.Request) (*http.Response, string) {
	b.Helper()
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer, string(body)
}

// TestForward: what a backend gets.
func TestForward(t *testing.T) {
	b := newBed(t)
	b.service("ns/echo", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s for=%s proto=%s host=%s own=%s", r.Proto, r.Host, r.RequestURI, r.Header["X-Forwarded-For"], r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Forwarded-Host"), r.Header.Get("Own"))
	})
	action := route.Action{Backends: to("ns/echo", route.HTTP1)}
	b.serve(route.Listener{Port: b.http, Rules: rule(action)})
	forged := func(r *http.Request) { r.Host = "a.example:81"; r.Header.Set("X-Forwarded-For", "6.6.6.6") }
	if _, got := b.get("/a%2Fb?q=1;2", forged); got != "HTTP/1.1 a.example:81 /a%2Fb?q=1;2 for=[127.0.0.1] proto=http host=a.example:81 own=" {
		t.Error(got)
	}
	if _, got := b.get("/a/../b/./c", nil); !strings.Contains(got, " /b/c ") {
		t.Error(got)
	}
	action.Backends = to("ns/echo", route.H2C)
	action.Rewrite = route.Rewrite{Host: "other", Path: &route.PathRewrite{Prefix: true, Value: "/new"}}
	action.Changes.Request.Set = []route.Header{{Name: "Own", Value: "1"}}
	action.Changes.Response.Add = []route.Header{{Name: "Back", Value: "2"}}
	b.serve(route.Listener{Port: b.http, Rules: rule(action)})
	answer, got := b.get("/x", nil)
	if !strings.HasPrefix(got, "HTTP/2.0 other /new/x ") || !strings.HasSuffix(got, "own=1") || answer.Header.Get("Back") != "2" {
		t.Error(got, answer.Header)
	}
}

// TestRefusals: answers without a backend's.
func TestRefusals(t *testing.T) {
	b := newBed(t)
	b.services["ns/dead"] = []netip.AddrPort{netip.AddrPortFrom(loopback, freePort(t))}
	b.service("ns/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for _, c := range []struct {
		rules  []route.Rule
		status int
		text   string
	}{
		{nil, 404, `no rule for the host "127.0.0.1" and the path "/"`},
		{rule(route.Action{Object: "Ingress ns/a"}), 500, "Ingress ns/a has no backend"},
		{rule(route.Action{Backends: to("ns/none", route.HTTP1)}), 503, "no endpoint of the Service ns/none is ready"},
		{rule(route.Action{Backends: to("ns/dead", route.HTTP1)}), 502, "the Service ns/dead has not answered"},
		{rule(route.Action{Backends: to("ns/slow", route.HTTP1), Timeout: 50 * time.Millisecond}), 504, "in time"},
		{rule(route.Action{Backends: to("ns/slow", route.HTTP1), BackendTimeout: 50 * time.Millisecond}), 504, "in time"},
		{rule(route.Action{Backends: []route.Backend{{Weight: 1, Refusal: &route.Refusal{Status: 503, Text: "reason"}}}}), 503, "reason"},
	} {
		b.serve(route.Listener{Port: b.http, Rules: c.rules})
		if answer, body := b.get("/", nil); answer.StatusCode != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%d %q, want %d %q", answer.StatusCode, body, c.status, c.text)
		}
	}
}

// TestRepeats: another endpoint is tried if one is gone, and a Retry repeats after a status.
func TestRepeats(t *testing.T) {
	b := newBed(t)
	asked := 0
	b.service("ns/a", func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked%3 != 0 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	b.serve(route.Listener{Port: b.http, Rules: rule(route.Action{Backends: to("ns/a", route.HTTP1), Retry: &route.Retry{Attempts: 2, Statuses: []int{502}}})})
	if answer, _ := b.get("/", nil); answer.StatusCode != 200 || asked != 3 {
		t.Errorf("%s after %d attempts, want 3", answer.Status, asked)
	}
	asked = 2
	b.services["ns/a"] = append(b.services["ns/a"], netip.AddrPortFrom(loopback, freePort(t)))
	b.serve(route.Listener{Port: b.http, Rules: rule(route.Action{Backends: to("ns/a", route.HTTP1)})})
	for range 20 {
		asked = 2
		if answer, _ := b.get("/", nil); answer.StatusCode != 200 {
			t.Fatal(answer.Status)
		}
	}
}

func TestRedirectAndMirror(t *testing.T) {
	b := newBed(t)
	b.serve(route.Listener{Port: b.http, Rules: rule(route.Action{Redirect: &route.Redirect{Scheme: "https", Host: "new.example", Path: &route.PathRewrite{Value: "/there"}, Status: 301}})})
	if answer, _ := b.get("/here?q=1", nil); answer.StatusCode != 301 || answer.Header.Get("Location") != "https://new.example/there?q=1" {
		t.Error(answer.Status, answer.Header)
	}
	copies := make(chan string, 1)
	b.service("ns/a", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	b.service("ns/copy", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		copies <- r.Method + " " + string(body)
	})
	b.serve(route.Listener{Port: b.http, Rules: rule(route.Action{Backends: to("ns/a", route.HTTP1), Mirrors: []route.Mirror{{Backend: to("ns/copy", route.HTTP1)[0], Numerator: 1, Denominator: 1}}})})
	_, body := b.get("/", func(r *http.Request) {
		r.Method, r.Body, r.ContentLength = "POST", io.NopCloser(strings.NewReader("text")), 4
	})
	if body != "text" {
		t.Errorf("answer %q", body)
	}
	if got := <-copies; got != "POST text" {
		t.Errorf("the mirror got %q", got)
	}
}

// TestWebSocket: an upgraded connection carries bytes in both directions.
func TestWebSocket(t *testing.T) {
	b := newBed(t)
	b.service("ns/ws", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		line, _ := buffered.ReadString('\n')
		fmt.Fprint(c, "echo "+line)
	})
	b.serve(route.Listener{Port: b.http, Rules: rule(route.Action{Backends: to("ns/ws", route.HTTP1), Timeout: time.Nanosecond})})
	c, err := net.Dial("tcp", netip.AddrPortFrom(loopback, b.http).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	reader := bufio.NewReader(c)
	if answer, err := http.ReadResponse(reader, nil); err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(answer, err)
	}
	fmt.Fprint(c, "hello\n")
	if got, err := reader.ReadString('\n'); got != "echo hello\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func certificate(t *testing.T, name string) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestTLS: the name chooses the certificate, a new one is used for the next handshake, HTTP/2 is offered, and
// another listener passes TLS through.
func TestTLS(t *testing.T) {
	b := newBed(t)
	b.service("ns/a", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Forwarded-Proto")) })
	own := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "passed through") }))
	t.Cleanup(own.Close)
	b.services["ns/own"] = []netip.AddrPort{addressOf(own.Listener.Addr())}
	a, wild := certificate(t, "a.example"), certificate(t, "*.example")
	serve := func() {
		b.serve(
			route.Listener{Port: b.https, Protocol: route.HTTPS, Rules: rule(route.Action{Backends: to("ns/a", route.HTTP1)}), Certificates: []route.Certificate{{Host: "a.example", Certificate: a}, {Host: "*.example", Certificate: wild}}},
			route.Listener{Port: b.https, Protocol: route.Passthrough, Hostname: "own.example", Rules: rule(route.Action{Backends: to("ns/own", route.HTTP1)})},
		)
	}
	ask := func(name, host string, trusted *x509.Certificate) (*http.Response, string) {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AddCert(trusted)
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name}}
		r, _ := http.NewRequestWithContext(context.Background(), "GET", fmt.Sprintf("https://127.0.0.1:%d/", b.https), nil)
		r.Host = host
		return b.do(transport, r)
	}
	serve()
	if answer, body := ask("a.example", "a.example", a.Leaf); body != "https" || answer.ProtoMajor != 2 {
		t.Error(answer.Proto, body)
	}
	ask("b.example", "b.example", wild.Leaf)
	a = certificate(t, "a.example")
	serve()
	ask("a.example", "a.example", a.Leaf)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "own.example"}}
	r, _ := http.NewRequest("GET", fmt.Sprintf("https://127.0.0.1:%d/", b.https), nil)
	if answer, body := b.do(transport, r); body != "passed through" || !answer.TLS.PeerCertificates[0].Equal(own.Certificate()) {
		t.Error(body)
	}
	// The connection is for one listener, the request for another.
	if answer, _ := ask("a.example", "own.example", a.Leaf); answer.StatusCode != http.StatusMisdirectedRequest {
		t.Error(answer.Status)
	}
	_, err := tls.Dial("tcp", netip.AddrPortFrom(loopback, b.https).String(), &tls.Config{InsecureSkipVerify: true, ServerName: "none.com"})
	if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("a name without a certificate: %v", err)
	}
}

// TestPorts: a port that is taken is reported, and is served when it is free.
func TestPorts(t *testing.T) {
	b := newBed(t)
	taken, err := net.Listen("tcp", netip.AddrPortFrom(loopback, b.http).String())
	if err != nil {
		t.Fatal(err)
	}
	table := route.New([]route.Listener{{Port: b.http}, {Port: b.https}})
	if failed := b.Serve(t.Context(), table); len(failed) != 1 || failed[b.http] == nil {
		t.Errorf("%v, want an error for port %d", failed, b.http)
	}
	taken.Close()
	if failed := b.Serve(t.Context(), table); len(failed) > 0 {
		t.Error(failed)
	}
	b.get("/", nil)
	b.serve(route.Listener{Port: b.https})
	if _, err := net.Dial("tcp", netip.AddrPortFrom(loopback, b.http).String()); err == nil {
		t.Error("the port is open that is in the table no longer")
	}
}
