// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// TestDial: a connection goes to the server that accepted the last one, to another one if that is lost, and never to what has no
// certificate of the cluster.
func TestDial(t *testing.T) {
	ca, serving := authorityAndCertificate(t)
	_, foreign := authorityAndCertificate(t)
	a, b, other := accepting(t, serving), accepting(t, serving), accepting(t, foreign)
	e, err := newEndpoints(ca, func() *tls.Certificate { return &serving }, other.Addr().String(), a.Addr().String(), b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dial := func() string {
		connection, err := e.dial(t.Context(), "tcp", "whatever:1")
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		return connection.RemoteAddr().String()
	}
	if first, again := dial(), dial(); first != a.Addr().String() || again != first {
		t.Errorf("connected to %s and %s, not to the first server %s", first, again, a.Addr())
	}
	_ = a.Close()
	if next, again := dial(), dial(); next != b.Addr().String() || again != next {
		t.Errorf("connected to %s and %s, not to the server that is left, %s", next, again, b.Addr())
	}
	_ = b.Close()
	if connection, err := e.dial(t.Context(), "tcp", "whatever:1"); err == nil {
		t.Errorf("connected to %s", connection.RemoteAddr())
	}
	d := accepting(t, serving)
	e.learn(a.Addr().String(), []string{b.Addr().String(), d.Addr().String()})
	if again := dial(); again != d.Addr().String() {
		t.Errorf("connected to %s, not to the new server %s", again, d.Addr())
	}
}

// authorityAndCertificate returns the certificate of an authority, in PEM, and a certificate of the API from it.
func authorityAndCertificate(t *testing.T) (ca []byte, serving tls.Certificate) {
	t.Helper()
	ca, key, err := cert.GenerateSelfSignedCertKey(apiName, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if serving, err = tls.X509KeyPair(ca, key); err != nil {
		t.Fatal(err)
	}
	return ca, serving
}

// accepting is a server that authenticates itself and nothing more.
func accepting(t *testing.T, serving tls.Certificate) net.Listener {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{serving}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			connection, err := l.Accept()
			if err != nil {
				return
			}
			_ = connection.(*tls.Conn).HandshakeContext(t.Context())
			_ = connection.Close()
		}
	}()
	return l
}

// TestProxy: a node reaches the server that it was given through the proxy of its environment.
func TestProxy(t *testing.T) {
	ca, serving := authorityAndCertificate(t)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	api.EnableHTTP2, api.TLS = true, &tls.Config{Certificates: []tls.Certificate{serving}}
	api.StartTLS()
	defer api.Close()
	asked := make(chan string, 1)
	proxy := httptest.NewServer(connectTo(t, api.Listener.Addr().String(), asked))
	defer proxy.Close()
	e, err := newEndpoints(ca, func() *tls.Certificate { return &serving })
	if err != nil {
		t.Fatal(err)
	}
	through := proxy.URL
	e.proxy = func(*http.Request) (*url.URL, error) { return url.Parse(through) }
	get := func() (string, error) {
		transport := e.transport()
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example:7443/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
	if protocol, err := get(); err != nil || protocol != "HTTP/2.0" {
		t.Fatalf("%q, %v", protocol, err)
	}
	if to := <-asked; to != "api.example:7443" {
		t.Errorf("the proxy was asked for %s", to)
	}
	through = strings.Replace(proxy.URL, "http:", "https:", 1)
	if _, err := get(); err == nil || !strings.Contains(err.Error(), "is reached with TLS, which nodes do not support") {
		t.Errorf("with TLS: %v", err)
	}
}

// connectTo is a proxy that connects to an address, whatever it is asked for.
func connectTo(t *testing.T, address string, asked chan<- string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			t.Errorf("the proxy was asked to %s", r.Method)
			return
		}
		asked <- r.Host
		server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		w.WriteHeader(http.StatusOK)
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		go func() { _, _ = io.Copy(server, client) }()
		_, _ = io.Copy(client, server)
	})
}

// TestLearn: a node learns the servers from the EndpointSlices of the Service kubernetes alone, keeps the address that it was given,
// and has them after a restart.
func TestLearn(t *testing.T) {
	dir := t.TempDir()
	member := Membership{Server: "https://lb.example", Node: "n", CA: selfSigned(t, dir)}
	credentials := credentialsIn(t, member, dir)
	kubernetes := slice("default", "kubernetes", "10.0.0.1", "10.0.0.2")
	for name, other := range map[string]*discoveryv1.EndpointSlice{
		"another Service": slice("default", "web", "10.0.0.9"), "another namespace": slice("kube-system", "kubernetes", "10.0.0.9"),
		"no endpoints": slice("default", "kubernetes"),
	} {
		if _, changed := credentials.Learn(other); changed {
			t.Errorf("%s: learnt %v", name, credentials.servers.list())
		}
	}
	learnt, changed := credentials.Learn(kubernetes)
	if !changed || !slices.Equal(learnt.Servers, []string{"10.0.0.1:6443", "10.0.0.2:6443"}) {
		t.Fatalf("learnt %+v, %v", learnt, changed)
	}
	if _, changed := credentials.Learn(kubernetes); changed {
		t.Error("learnt the same again")
	}
	path := filepath.Join(dir, "membership")
	if err := learnt.Write(path); err != nil {
		t.Fatal(err)
	}
	stored, err := ReadMembership(path)
	if err != nil {
		t.Fatal(err)
	}
	if known := credentialsIn(t, stored, dir).servers.list(); !slices.Equal(known, []string{"lb.example:443", "10.0.0.1:6443", "10.0.0.2:6443"}) {
		t.Errorf("after a restart the servers are %v", known)
	}
	if _, changed := credentials.Learn(slice("default", "kubernetes", "10.0.0.2")); !changed || !slices.Equal(credentials.servers.list(), []string{"lb.example:443", "10.0.0.2:6443"}) {
		t.Errorf("after a server has left: %v", credentials.servers.list())
	}
}

func slice(namespace, service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports:      []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
	}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return s
}

// selfSigned stores a certificate as that of the node, and returns it as its authority.
func selfSigned(t *testing.T, dir string) []byte {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := openStore(dir, clientPair)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Update(certificate, key); err != nil {
		t.Fatal(err)
	}
	return certificate
}

func credentialsIn(t *testing.T, member Membership, dir string) *Credentials {
	t.Helper()
	credentials, err := Open(member, dir, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return credentials
}
