// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// throughProxy asks the proxy at a port of loopback for a URL. With roots, it verifies the server's certificate.
func throughProxy(port int, url string, roots *x509.CertPool) (*http.Response, string, error) {
	transport := &http.Transport{
		DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		},
	}
	client := http.Client{Transport: transport, Timeout: 5 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer, strings.TrimSpace(string(body)), err
}

// selfSigned writes a certificate and its key, and returns a pool that trusts it.
func selfSigned(t *testing.T, dir, name string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, content := range map[string][]byte{"tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots
}

// TestIngress: hosts and paths of an Ingress reach pods, with the certificate of its Secret, also a renewed one.
// Missing objects are events, the status has the address, and a deleted Ingress is served no longer.
func TestIngress(t *testing.T) {
	httpPort, httpsPort := unusedPort(t), unusedPort(t)
	s := newSession(t, ownClusterWithNode(t, "--ingress", "--ingress-address", "127.0.0.1",
		"--ingress-http-port", fmt.Sprint(httpPort), "--ingress-https-port", fmt.Sprint(httpsPort)))
	s.apply(backends)
	s.apply(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  tls: [{hosts: [a.example], secretName: cert}]
  rules:
  - host: a.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: who, port: {number: 80}}}}
      - {path: /missing, pathType: Exact, backend: {service: {name: missing, port: {name: http}}}}
`)
	s.kubectl("rollout", "status", "deployment/who", "--timeout=60s")
	answers := func(port int, url string, roots *x509.CertPool, status int, text string) {
		t.Helper()
		s.eventually(url, func() error {
			answer, body, err := throughProxy(port, url, roots)
			if err != nil {
				return err
			}
			if answer.StatusCode != status || !strings.Contains(body, text) {
				return fmt.Errorf("%s %q, want %d %q", answer.Status, body, status, text)
			}
			return nil
		})
	}
	answers(httpPort, "http://a.example/", nil, 200, "who-")
	answers(httpPort, "http://a.example/missing/", nil, 404, "") // of the pod: Exact does not match
	answers(httpPort, "http://a.example/missing", nil, 503, "Service "+s.namespace+"/missing does not exist")
	answers(httpPort, "http://b.example/", nil, 404, "kindred: no rule for the host")
	s.prints("kindred 127.0.0.1", "get", "ingress", "web", "-o", "jsonpath={.spec.ingressClassName} {.status.loadBalancer.ingress[*].ip}")
	s.eventually("events", func() error {
		events := s.kubectl("get", "events", "--field-selector", "involvedObject.name=web", "-o", "jsonpath={.items[*].message}")
		for _, part := range []string{"no Secret " + s.namespace + "/cert of the type", "missing does not exist"} {
			if !strings.Contains(events, part) {
				return fmt.Errorf("no %q in %q", part, events)
			}
		}
		return nil
	})

	dir := t.TempDir()
	files := []string{"--cert", filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key")}
	roots := selfSigned(t, dir, "a.example")
	s.kubectl(append([]string{"create", "secret", "tls", "cert"}, files...)...)
	answers(httpsPort, "https://a.example/", roots, 200, "who-")
	if answer, _, err := throughProxy(httpsPort, "https://a.example/", roots); err != nil || answer.ProtoMajor != 2 {
		t.Errorf("HTTP/2: %v", err)
	}
	renewed := selfSigned(t, dir, "a.example")
	s.kubectl("delete", "secret", "cert")
	s.kubectl(append([]string{"create", "secret", "tls", "cert"}, files...)...)
	answers(httpsPort, "https://a.example/", renewed, 200, "who-")
	if _, _, err := throughProxy(httpsPort, "https://b.example/", renewed); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("a host without a certificate: %v", err)
	}

	s.kubectl("scale", "deployment/who", "--replicas=0")
	answers(httpPort, "http://a.example/", nil, 503, "no endpoint of the Service "+s.namespace+"/who is ready")
	s.kubectl("scale", "deployment/who", "--replicas=1")
	s.cluster.kill(t)
	s.cluster.again(t)
	answers(httpPort, "http://a.example/", nil, 200, "who-")
	s.kubectl("delete", "ingress", "web")
	answers(httpPort, "http://a.example/", nil, 404, "kindred: no rule for the host")
}

func unusedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
