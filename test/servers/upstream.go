// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// admission are the plugins that upstream must run in addition to its default ones.
var admission = []string{"NodeRestriction", "OwnerReferencesPermissionEnforcement"}

// Start starts etcd and upstream's API server in dir, without controllers. Without fsync it is
// faster, and the store does not survive a crash of the machine.
func (u Upstream) Start(ctx context.Context, dir string, fsync bool) (_ *Server, err error) {
	s := &Server{Name: "upstream", Kubeconfig: filepath.Join(dir, "kubeconfig")}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	etcd, err := s.startEtcd(ctx, dir, u.etcd, fsync)
	if err != nil {
		return nil, err
	}
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	key, authority := keyFile(dir), filepath.Join(dir, "admin.crt")
	keyPEM, certPEM, err := newAdmin()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(key, keyPEM, 0o600), os.WriteFile(authority, certPEM, 0o600)); err != nil {
		return nil, err
	}
	// The server's self-signed certificate is not verified, because the server is on loopback.
	if err := writeKubeconfig(s.Kubeconfig, admin,
		clientcmdapi.Cluster{Server: "https://" + address, InsecureSkipTLSVerify: true},
		clientcmdapi.AuthInfo{ClientCertificate: authority, ClientKey: key}); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return nil, err
	}
	flags := append(apiserverFlags(etcd, authority, key, admission...),
		"--bind-address=127.0.0.1",
		"--secure-port="+port,
		// The server refuses to advertise loopback. This address is not reachable (RFC 5737).
		"--advertise-address=192.0.2.1",
		"--cert-dir="+filepath.Join(dir, "certs"),
	)
	apiserver, err := launch("kube-apiserver", filepath.Join(dir, "kube-apiserver.log"), nil, u.apiserver, flags...)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, apiserver)
	s.connect(config)
	return s, apiserver.await(ctx, s.checkReady)
}

// keyFile returns the file of the key of the administrator and of service account tokens.
func keyFile(dir string) string { return filepath.Join(dir, "admin.key") }

// UpstreamControlPlane is upstream's API server with its controllers and its scheduler.
type UpstreamControlPlane struct {
	Upstream
	controllerManager, scheduler string
}

// Start starts the control plane in dir without its scheduler, the controller manager with additional
// flags. For fsync, see [Upstream.Start].
func (u UpstreamControlPlane) Start(ctx context.Context, dir string, fsync bool, more ...string) (_ *Server, err error) {
	s, err := u.Upstream.Start(ctx, dir, fsync)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	more = append([]string{"--service-account-private-key-file=" + keyFile(dir), "--use-service-account-credentials=true"}, more...)
	return s, s.startClient(ctx, dir, "kube-controller-manager", u.controllerManager, more)
}

// Schedule starts the scheduler of a control plane that runs in dir, with additional flags.
func (u UpstreamControlPlane) Schedule(ctx context.Context, s *Server, dir string, more ...string) error {
	return s.startClient(ctx, dir, "kube-scheduler", u.scheduler, more)
}

// startClient starts a program of the control plane that is a client of the API server.
func (s *Server) startClient(ctx context.Context, dir, name, binary string, more []string) error {
	port, healthz, err := localServer()
	if err != nil {
		return err
	}
	client, err := launch(name, filepath.Join(dir, name+".log"), nil, binary, append(clientFlags(s.Kubeconfig, port), more...)...)
	if err != nil {
		return err
	}
	s.processes = append(s.processes, client)
	return client.await(ctx, healthz)
}

// startEtcd starts the store and returns its URL.
func (s *Server) startEtcd(ctx context.Context, dir, binary string, fsync bool) (string, error) {
	client, err := FreeAddress()
	if err != nil {
		return "", err
	}
	peer, err := FreeAddress()
	if err != nil {
		return "", err
	}
	client, peer = "http://"+client, "http://"+peer
	etcd, err := launch("etcd", filepath.Join(dir, "etcd.log"), nil, binary,
		"--data-dir="+filepath.Join(dir, "etcd"), fmt.Sprintf("--unsafe-no-fsync=%t", !fsync), "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if err != nil {
		return "", err
	}
	s.processes = append(s.processes, etcd)
	return client, etcd.await(ctx, func(ctx context.Context) error {
		return checkHealth(ctx, http.DefaultClient, client+"/health")
	})
}

// newAdmin creates the administrator's key and certificate. As Kindred's, this administrator has a
// certificate, because the user info depends on the way of authentication. The certificate is
// self-signed; its key also signs the tokens of service accounts.
func newAdmin() (keyPEM, certPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: admin, Organization: []string{adminGroup}}, key)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der})
	return keyPEM, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate.Raw}), nil
}
