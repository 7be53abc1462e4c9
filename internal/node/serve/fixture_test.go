// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	streamcommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/config"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/stats"
)

// authority issues certificates for a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, der := sign(t, template, nil, nil)
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate: certificate, key: key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

func (a *authority) issue(t *testing.T, name pkix.Name, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: name, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	key, der := sign(t, template, a.certificate, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func sign(t *testing.T, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

// node is a Lookup with one pod that has one container.
type node struct {
	mu       sync.Mutex
	pod      *v1.Pod
	current  *nodepod.ContainerInstance
	previous *nodepod.ContainerInstance
}

func (n *node) Pod(namespace, name string, uid types.UID) (*v1.Pod, bool) {
	if namespace != n.pod.Namespace || name != n.pod.Name || (uid != "" && uid != n.pod.UID) {
		return nil, false
	}
	return n.pod, true
}

func (n *node) Pods() []*v1.Pod { return []*v1.Pod{n.pod} }

func (n *node) Container(_ context.Context, _ types.UID, name string, previous bool) (nodepod.ContainerInstance, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	instance := n.current
	if previous {
		instance = n.previous
	}
	if instance == nil || name != "c" {
		return nodepod.ContainerInstance{}, false
	}
	return *instance, true
}

func (n *node) Sandbox(context.Context, types.UID) (string, bool) { return "sandbox", true }

func (n *node) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current.Running = false
}

// process is a runtime whose containers run one command, which echoes its input.
type process struct{ streaming.Server }

func (p process) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return p.GetExec(r)
}

func (p process) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return p.GetAttach(r)
}

func (p process) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return p.GetPortForward(r)
}

// ExecSync writes the command to both outputs, but fails for the command "fail".
func (p process) ExecSync(_ context.Context, id string, command []string, _ time.Duration) ([]byte, []byte, error) {
	if command[0] == "fail" {
		return nil, nil, exitError(7)
	}
	return fmt.Appendf(nil, "%s %q", id, command), []byte(" errors"), nil
}

// CheckpointContainer writes the request to the archive, but fails for a timeout of 13 s.
func (p process) CheckpointContainer(_ context.Context, r *runtimeapi.CheckpointContainerRequest) error {
	if r.Timeout == 13 {
		return status.Error(codes.Internal, "criu is missing")
	}
	return os.WriteFile(r.Location, []byte(r.ContainerId), 0o600)
}

type echo struct{}

type exitError int

func (e exitError) Error() string   { return fmt.Sprintf("exit %d", int(e)) }
func (e exitError) String() string  { return e.Error() }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return int(e) }

func (echo) Exec(_ context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan streamcommand.TerminalSize) error {
	fmt.Fprintf(out, "%s %v tty=%v\n", id, cmd, tty)
	if in != nil {
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	if cmd[0] == "fail" {
		return exitError(7)
	}
	return nil
}

func (e echo) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan streamcommand.TerminalSize) error {
	return e.Exec(ctx, id, []string{"attached"}, in, out, errOut, tty, resize)
}

func (echo) PortForward(_ context.Context, sandbox string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	fmt.Fprintf(stream, "%s:%d ", sandbox, port)
	line := make([]byte, 5)
	if _, err := io.ReadFull(stream, line); err != nil {
		return err
	}
	_, err := stream.Write(line)
	return err
}

type fixture struct {
	node   *node
	ca     *authority
	server string
	config *rest.Config
	client *http.Client

	checkpoints string
	// handler is the server, and reviews is what it asks.
	handler *Server
	reviews *reviews
}

func newFixture(t *testing.T, configure ...func(*config.Configuration)) *fixture {
	t.Helper()
	f := &fixture{checkpoints: filepath.Join(t.TempDir(), "checkpoints"), ca: newAuthority(t), node: &node{
		pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}, {Name: "other"}}},
		},
		current: &nodepod.ContainerInstance{ID: "id", Running: true, LogPath: filepath.Join(t.TempDir(), "0.log")},
	}}
	f.log(t, "2030-01-01T00:00:01.5Z stdout F one\n2030-01-01T00:00:02Z stderr F two\n")

	runtime := httptest.NewUnstartedServer(nil)
	streamConfig := streaming.DefaultConfig
	streamConfig.BaseURL = &url.URL{Scheme: "http", Host: runtime.Listener.Addr().String()}
	streams, err := streaming.NewServer(streamConfig, echo{})
	if err != nil {
		t.Fatal(err)
	}
	runtime.Config.Handler = streams
	runtime.Start()
	t.Cleanup(runtime.Close)

	settings := config.Default()
	settings.Flags = map[string]string{"pod-cidr": "10.0.0.0/24"}
	for _, c := range configure {
		c(settings)
	}
	f.reviews = newReviews(t)
	access, err := NewAccess(AccessOptions{
		Config: &settings.KubeletConfiguration, ClusterCA: f.ca.pem(),
		Users: []string{"apiserver"}, Groups: []string{"system:masters"}, Reviews: f.reviews,
	})
	if err != nil {
		t.Fatal(err)
	}
	text := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	server := New(Options{
		Node: "n", Config: settings, Lookup: f.node, Runtime: process{streams}, Clock: clock.RealClock{}, Access: access,
		CheckpointDir: f.checkpoints,
		Health:        []healthz.HealthChecker{healthz.PingHealthz},
		Resources: func(context.Context) (stats.Summary, error) {
			return stats.Summary{Node: &stats.Usage{Time: time.Unix(1, 0), Memory: 1}}, nil
		},
		Summary: func(_ context.Context, only bool) (*statsapi.Summary, error) {
			return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: fmt.Sprintf("n %t", only)}}, nil
		},
		RunningPods: func(context.Context) ([]*v1.Pod, error) {
			return []*v1.Pod{{Spec: v1.PodSpec{NodeName: "running"}}}, nil
		},
		Metrics: text("metrics"), Containers: text("containers"), Probes: text("probes"),
	})
	f.handler = server
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := f.ca.issue(t, pkix.Name{CommonName: "node"}, x509.ExtKeyUsageServerAuth)
	serving, err := TLSConfig(&config.Default().KubeletConfiguration, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- server.Serve(ctx, listener, serving)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	f.server = "https://" + listener.Addr().String()
	f.config = f.configFor(t, f.ca.issue(t, pkix.Name{CommonName: "apiserver"}, x509.ExtKeyUsageClientAuth))
	if f.client, err = rest.HTTPClientFor(f.config); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) configFor(t *testing.T, certificate tls.Certificate) *rest.Config {
	t.Helper()
	key, err := x509.MarshalECPrivateKey(certificate.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return &rest.Config{Host: f.server, TLSClientConfig: rest.TLSClientConfig{
		CAData:   block("CERTIFICATE", f.ca.certificate.Raw),
		CertData: block("CERTIFICATE", certificate.Certificate[0]), KeyData: block("EC PRIVATE KEY", key),
	}}
}

func (f *fixture) log(t *testing.T, text string) {
	t.Helper()
	file, err := os.OpenFile(f.node.current.LogPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
