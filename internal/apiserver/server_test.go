// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/storage"
)

// server is shared by the tests of this package, because most tests are faster than the start of a
// server. Each test works in a namespace of its own.
var server *testServer

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kindred-apiserver-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	backend, err := storage.Embedded(ctx, filepath.Join(dir, "etcd"), clock.RealClock{}, storage.DefaultRetention)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer backend.Close()
	if server, err = boot(ctx, dir, backend); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { cancel(); <-server.stopped }()
	return m.Run()
}

// testServer is a ready server, with clients over HTTPS and in process.
type testServer struct {
	*Server
	url     string
	backend *storage.Backend
	keys    *pki.PKI
	admin   *http.Client
	// stopped reports why Run returned.
	stopped chan error
}

// own starts a server for one test, with its own configuration.
func own(t *testing.T, change func(*Config)) *testServer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	dir := t.TempDir()
	backend, err := storage.Embedded(ctx, filepath.Join(dir, "etcd"), clock.RealClock{}, storage.DefaultRetention)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	s, err := boot(ctx, dir, backend, change)
	t.Cleanup(func() {
		cancel()
		if s != nil {
			<-s.stopped
		}
		backend.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// boot starts a server on the backend and waits until it is ready.
func boot(ctx context.Context, dir string, backend *storage.Backend, changes ...func(*Config)) (*testServer, error) {
	keys, err := pki.Open(filepath.Join(dir, "pki"), clock.RealClock{})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	loopback := net.IPv4(127, 0, 0, 1)
	config := Config{
		Backend: backend, PKI: keys, Listener: listener, Names: pki.Names{IPs: []net.IP{loopback}},
		AdvertiseAddress: loopback, AdvertisePort: listener.Addr().(*net.TCPAddr).Port,
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Clock: clock.RealClock{},
		DataDir: dir, ReserveDisk: 1, Flags: map[string]string{"secure-port": "0"},
	}
	for _, change := range changes {
		change(&config)
	}
	s, err := New(config)
	if err != nil {
		return nil, err
	}
	t := &testServer{Server: s, backend: backend, url: "https://" + listener.Addr().String(), keys: keys, stopped: make(chan error, 1)}
	go func() { t.stopped <- s.Run(ctx) }()
	if t.admin, err = t.httpsClient(keys.Admin); err != nil {
		return nil, err
	}
	if err := within(10*time.Second, func() error { return s.EnsureSystem(ctx) }); err != nil {
		return nil, err
	}
	return t, within(10*time.Second, t.ready)
}

func (s *testServer) ready() error {
	response, err := s.admin.Get(s.url + "/readyz?verbose")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", body)
	}
	return nil
}

// httpsClient returns a client that connects over HTTPS. Without credentials it is anonymous.
func (s *testServer) httpsClient(credentials func() (*pki.Pair, error)) (*http.Client, error) {
	roots := x509.NewCertPool()
	roots.AddCert(s.keys.Cluster.Certificate)
	config := &tls.Config{RootCAs: roots}
	if credentials != nil {
		pair, err := credentials()
		if err != nil {
			return nil, err
		}
		certificate, err := pair.TLS()
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}, Timeout: 10 * time.Second}, nil
}

// within retries until try succeeds or the time is over.
func within(limit time.Duration, try func() error) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// as returns an in-process client that acts as a user.
func (s *testServer) as(t *testing.T, name string, groups ...string) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config(&user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *testServer) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	return s.as(t, "admin", user.SystemPrivilegedGroup)
}

// namespace creates a namespace and waits for the service account that pods need.
func (s *testServer) namespace(t *testing.T) string {
	t.Helper()
	client := s.client(t)
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(made.Name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.Name
}

// answer is the response to a raw request.
type answer struct {
	code   int
	header http.Header
	body   string
}

// status decodes the body as a Status.
func (a answer) status(t *testing.T) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(a.body), &status); err != nil || status.Kind != "Status" {
		t.Fatalf("the answer (%d) is no Status: %.300q", a.code, a.body)
	}
	return status
}

// do sends a raw request over HTTPS. Headers alternate names and values.
func (s *testServer) do(t *testing.T, client *http.Client, method, path, body string, headers ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(got)}
}

func (s *testServer) anonymous(t *testing.T) *http.Client {
	t.Helper()
	client, err := s.httpsClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}
