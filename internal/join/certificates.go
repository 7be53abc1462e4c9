// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/utils/clock"
)

// servingPair is the name of the files of the certificate of the agent's server.
const servingPair = "node-serving"

// Credentials are the certificates of a node. They are renewed while Run runs.
type Credentials struct {
	member Membership
	dir    string
	clock  clock.WithTicker
	// servers are where the API is reached, through one transport that all clients share.
	servers   *endpoints
	transport *http.Transport
	times     *clockWatch
	client    certificate.Manager
	// serving is nil until Serve.
	serving certificate.Manager
}

// Open opens the credentials of a member of a cluster in a directory, which has the client certificate of its node.
func Open(member Membership, dir string, clock clock.WithTicker) (*Credentials, error) {
	files, err := openStore(dir, clientPair)
	if err != nil {
		return nil, err
	}
	c := &Credentials{member: member, dir: dir, clock: clock, times: watchClock(clock)}
	given, err := addressOf(member.Server)
	if err != nil {
		return nil, fmt.Errorf("the URL of the server: %w", err)
	}
	c.servers, err = newEndpoints(member.CA, func() *tls.Certificate { return c.client.Current() }, given)
	if err != nil {
		return nil, err
	}
	c.servers.learn(given, member.Servers)
	c.transport = c.servers.transport()
	c.client, err = certificate.NewManager(&certificate.Config{
		ClientsetFn:      c.clientset,
		Template:         &x509.CertificateRequest{Subject: subject(member.Node)},
		SignerName:       certificatesv1.KubeAPIServerClientKubeletSignerName,
		GetUsages:        certificate.DefaultKubeletClientGetUsages,
		CertificateStore: files,
		Name:             "client certificate of the node",
	})
	return c, err
}

// Config returns the configuration of clients that act as the node. They use each new certificate, and any server that answers.
func (c *Credentials) Config() *rest.Config {
	return &rest.Config{Host: c.member.Server, QPS: -1, Transport: c.transport, WrapTransport: c.times.wrap}
}

// OnWrongClock calls notice with a line for users when this machine's clock is far from that of a server, and when it is right again. It is
// called before Config.
func (c *Credentials) OnWrongClock(notice func(line string)) { c.times.notice = notice }

// Learn notes the servers in an EndpointSlice of the Service kubernetes, and returns the membership to store if they have changed.
// It ignores other EndpointSlices.
func (c *Credentials) Learn(slice *discoveryv1.EndpointSlice) (_ Membership, changed bool) {
	servers, ok := apiEndpoints(slice)
	if !ok || len(servers) == 0 {
		return Membership{}, false
	}
	given, err := addressOf(c.member.Server)
	if err != nil || !c.servers.learn(given, servers) {
		return Membership{}, false
	}
	member := c.member
	member.Servers = servers
	return member, true
}

// CA returns the certificates of the cluster's authority, in PEM.
func (c *Credentials) CA() []byte { return c.member.CA }

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
		Template:         &x509.CertificateRequest{Subject: subject(c.member.Node), DNSNames: []string{c.member.Node}, IPAddresses: addresses},
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

// renewalCheck is the time between two looks whether the client certificate has been renewed.
const renewalCheck = time.Minute

// Run renews the certificates until ctx ends. Connections with an earlier client certificate are closed.
func (c *Credentials) Run(ctx context.Context) error {
	c.client.Start()
	defer c.client.Stop()
	if c.serving != nil {
		defer c.serving.Stop()
	}
	ticker := c.clock.NewTicker(renewalCheck)
	defer ticker.Stop()
	for used := c.client.Current(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if now := c.client.Current(); now != used {
			used = now
			c.servers.opened.CloseAll()
		}
	}
}

func encodeRequest(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateRequestBlockType, Bytes: der})
}
