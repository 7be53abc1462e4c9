// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
)

// servingPair is the name of the files of the certificate of the agent's server.
const servingPair = "node-serving"

// Credentials are the certificates of a node. They are renewed while Run runs.
type Credentials struct {
	server string
	ca     []byte
	node   string
	dir    string
	files  certificate.FileStore
	client certificate.Manager
	// serving is nil until Serve.
	serving certificate.Manager
}

// Open opens the credentials of a node in a directory, which has its client certificate.
func Open(server string, ca []byte, dir, node string) (*Credentials, error) {
	c := &Credentials{server: server, ca: ca, node: node, dir: dir}
	var err error
	if c.files, err = openStore(dir, clientPair); err != nil {
		return nil, err
	}
	c.client, err = certificate.NewManager(&certificate.Config{
		ClientsetFn:      c.clientset,
		Template:         &x509.CertificateRequest{Subject: subject(node)},
		SignerName:       certificatesv1.KubeAPIServerClientKubeletSignerName,
		GetUsages:        certificate.DefaultKubeletClientGetUsages,
		CertificateStore: c.files,
		Name:             "client certificate of the node",
	})
	return c, err
}

// Config returns the configuration of clients that act as the node. They use each new certificate.
func (c *Credentials) Config() *rest.Config {
	path := c.files.CurrentPath()
	return &rest.Config{Host: c.server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca, CertFile: path, KeyFile: path}}
}

// CA returns the certificates of the cluster's authority, in PEM.
func (c *Credentials) CA() []byte { return c.ca }

func (c *Credentials) clientset(*tls.Certificate) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(c.Config())
}

// Serving has a certificate for the agent's server at the addresses requested and renewed, and returns it. It is called once, before
// Run.
func (c *Credentials) Serving(addresses []net.IP) (Certificate, error) {
	store, err := openStore(c.dir, servingPair)
	if err != nil {
		return nil, err
	}
	c.serving, err = certificate.NewManager(&certificate.Config{
		ClientsetFn:      c.clientset,
		Template:         &x509.CertificateRequest{Subject: subject(c.node), DNSNames: []string{c.node}, IPAddresses: addresses},
		SignerName:       certificatesv1.KubeletServingSignerName,
		GetUsages:        certificate.DefaultKubeletServingGetUsages,
		CertificateStore: store,
		Name:             "serving certificate of the node",
	})
	if err != nil {
		return nil, err
	}
	c.serving.Start()
	return c.serving.Current, nil
}

// Run renews the certificates until ctx ends.
func (c *Credentials) Run(ctx context.Context) error {
	c.client.Start()
	defer c.client.Stop()
	if c.serving != nil {
		defer c.serving.Stop()
	}
	<-ctx.Done()
	return nil
}

func encodeRequest(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateRequestBlockType, Bytes: der})
}
