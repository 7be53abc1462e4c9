// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Both servers have the same ranges, issuer and administrator, so that what they answer
// with does not differ for want of that.
const (
	serviceCIDR = "10.96.0.0/16"
	admin       = "kubernetes-admin"
	adminGroup  = "system:masters"
	// issuer is Kindred's.
	issuer = "https://kubernetes.default.svc.cluster.local"
)

// admission is what upstream must run beside its default plugins.
var admission = []string{"NodeRestriction", "OwnerReferencesPermissionEnforcement"}

// server is one of the two that are compared.
type server struct {
	name string
	url  string
	http *http.Client
	// processes are what it is made of, in the order of their start.
	processes []*process
}

// stop ends the processes, the last one first.
func (s *server) stop() {
	for _, p := range slices.Backward(s.processes) {
		p.stop()
	}
}

// running is an error if a part of the server has ended.
func (s *server) running() error {
	var ended []error
	for _, p := range s.processes {
		ended = append(ended, p.running())
	}
	return errors.Join(ended...)
}

// connect makes the client of a server.
func (s *server) connect(config *rest.Config) (err error) {
	config.QPS = -1
	config.Timeout = startLimit
	s.url = config.Host
	s.http, err = rest.HTTPClientFor(config)
	return err
}

// ready asks the server whether it is.
func (s *server) ready(ctx context.Context) error {
	answer, err := s.send(ctx, request{Method: http.MethodGet, Path: "/readyz"})
	if err != nil {
		return err
	}
	if answer.Code != http.StatusOK {
		return fmt.Errorf("readyz: %s", answer.raw)
	}
	return nil
}

// startUpstream starts etcd and upstream's API server in dir, and nothing else: no
// controllers.
func startUpstream(ctx context.Context, dir, etcdBinary, apiserverBinary string) (_ *server, err error) {
	s := &server{name: "upstream"}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	etcd, err := s.startEtcd(ctx, dir, etcdBinary)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	key, authority := filepath.Join(dir, "admin.key"), filepath.Join(dir, "admin.crt")
	keyPEM, certPEM, err := newAdmin()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(key, keyPEM, 0o600), os.WriteFile(authority, certPEM, 0o600)); err != nil {
		return nil, err
	}
	apiserver, err := launch("kube-apiserver", filepath.Join(dir, "kube-apiserver.log"), apiserverBinary,
		"--etcd-servers="+etcd,
		"--bind-address=127.0.0.1",
		"--secure-port="+port,
		// It refuses to advertise loopback. Nobody is meant to come this way (RFC 5737).
		"--advertise-address=192.0.2.1",
		"--cert-dir="+filepath.Join(dir, "certs"),
		"--client-ca-file="+authority,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins="+strings.Join(admission, ","),
		"--service-cluster-ip-range="+serviceCIDR,
		"--service-account-issuer="+issuer,
		"--service-account-key-file="+key,
		"--service-account-signing-key-file="+key,
		"--allow-privileged=true",
	)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, apiserver)
	// The certificate is of the server's own making; it is on loopback, and ours.
	config := &rest.Config{Host: "https://" + address, TLSClientConfig: rest.TLSClientConfig{Insecure: true, KeyData: keyPEM, CertData: certPEM}}
	if err := s.connect(config); err != nil {
		return nil, err
	}
	return s, apiserver.await(ctx, s.ready)
}

// startEtcd starts a store without durability: it does not outlive the run.
func (s *server) startEtcd(ctx context.Context, dir, binary string) (string, error) {
	client, err := freeAddress()
	if err != nil {
		return "", err
	}
	peer, err := freeAddress()
	if err != nil {
		return "", err
	}
	client, peer = "http://"+client, "http://"+peer
	etcd, err := launch("etcd", filepath.Join(dir, "etcd.log"), binary,
		"--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if err != nil {
		return "", err
	}
	s.processes = append(s.processes, etcd)
	return client, etcd.await(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, client+"/health", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// newAdmin makes the administrator's key and certificate. Like Kindred's, he comes with a
// certificate, because how he came is part of who he is. It is its own authority; its key
// also signs the tokens of service accounts.
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

// startKindred starts a copy of the binary: the original may be built anew meanwhile.
func startKindred(ctx context.Context, dir, binary string) (_ *server, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "kindred")
	if err := copyFile(own, binary); err != nil {
		return nil, fmt.Errorf("no binary to compare: %w; run \"make build\", or name one with -kindred", err)
	}
	data := filepath.Join(dir, "data")
	s := &server{name: "kindred"}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	process, err := launch("kindred", filepath.Join(dir, "kindred.log"), own,
		"up", "--data-dir", data, "--no-node", "--simulated-nodes", "0", "--secure-port", "0", "--service-cidr", serviceCIDR)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, process)
	return s, process.await(ctx, func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(data, "kubeconfig"))
		if err != nil {
			return err
		}
		if err := s.connect(config); err != nil {
			return err
		}
		return s.ready(ctx)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
