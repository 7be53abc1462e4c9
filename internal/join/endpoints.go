// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/connrotation"
)

const (
	// dialLimit is the time that a server has to accept a connection, and then to authenticate itself, before the next one is tried.
	dialLimit = 3 * time.Second
	// silence is the time without a response after which a server is asked whether it is there (a ping of HTTP/2), and the time that it has
	// to answer before another one is tried. It is much shorter than the time after which the cluster gives up a node that does not
	// report.
	silence = 4 * time.Second
)

// apiName is in the certificates of all API servers, so that a certificate is valid whichever of them answers.
const apiName = "kubernetes.default.svc"

// endpoints are the addresses at which the servers of a cluster listen.
type endpoints struct {
	dialer net.Dialer
	tls    *tls.Config
	opened *connrotation.ConnectionTracker
	// proxy returns the proxy for a request; nil if there is none.
	proxy func(*http.Request) (*url.URL, error)

	mu sync.Mutex
	// known are host:port, in the order in which they are tried: the one that has accepted the last connection is first.
	known []string
}

// newEndpoints returns endpoints whose servers have certificates of an authority, in PEM, and at which clients have the certificate
// that a function returns.
func newEndpoints(ca []byte, client func() *tls.Certificate, known ...string) (*endpoints, error) {
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(ca) {
		return nil, errors.New("the cluster's authority has no certificate")
	}
	return &endpoints{
		known: known, dialer: net.Dialer{Timeout: dialLimit}, opened: connrotation.NewConnectionTracker(), proxy: http.ProxyFromEnvironment,
		tls: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: authority, ServerName: apiName, NextProtos: []string{"h2", "http/1.1"},
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if current := client(); current != nil {
					return current, nil
				}
				return nil, errors.New("this node has no valid certificate")
			},
		},
	}, nil
}

// transport returns a transport for requests to any of the servers. Through a proxy of the environment, which client-go's clients use as
// well, it reaches only the one in the URL of the request.
func (e *endpoints) transport() *http.Transport {
	return &http.Transport{
		DialTLSContext: e.dial, ForceAttemptHTTP2: true, DisableCompression: true,
		Proxy: e.proxyFor, DialContext: e.dialProxy, TLSClientConfig: e.tls.Clone(),
		HTTP2: &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence},
	}
}

// dial connects to the first server that accepts and has a certificate of the cluster, whatever the address: all serve the same API.
func (e *endpoints) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var errs []error
	for _, address := range e.list() {
		connection, err := e.connect(ctx, network, address)
		if err == nil {
			e.prefer(address)
			return connection, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (e *endpoints) connect(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := e.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	connection := tls.Client(e.opened.Track(raw), e.tls)
	if err := connection.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return connection, nil
}

// proxyFor returns the proxy for a request; nil if there is none.
func (e *endpoints) proxyFor(r *http.Request) (*url.URL, error) {
	proxy, err := e.proxy(r)
	if err == nil && proxy != nil && proxy.Scheme == "https" {
		return nil, fmt.Errorf("the proxy %s is reached with TLS, which nodes do not support: give one of http:// or socks5://", proxy.Redacted())
	}
	return proxy, err
}

// dialProxy connects to a proxy. The transport authenticates the server behind it.
func (e *endpoints) dialProxy(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := e.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", address, err)
	}
	return e.opened.Track(raw), nil
}

func (e *endpoints) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.known)
}

// prefer moves an address that has accepted to the front.
func (e *endpoints) prefer(address string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.known, address); i > 0 {
		e.known = slices.Insert(slices.Delete(e.known, i, i+1), 0, address)
	}
}

// learn replaces the addresses, and reports whether they have changed. The given one stays, because it may be a load balancer's.
func (e *endpoints) learn(given string, addresses []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	wanted := append([]string{given}, addresses...)
	next := slices.DeleteFunc(slices.Clone(e.known), func(a string) bool { return !slices.Contains(wanted, a) })
	for _, address := range wanted {
		if !slices.Contains(next, address) {
			next = append(next, address)
		}
	}
	changed := !slices.Equal(slices.Sorted(slices.Values(next)), slices.Sorted(slices.Values(e.known)))
	e.known = next
	return changed
}

// apiEndpoints returns the addresses in an EndpointSlice, if it is one of the Service kubernetes.
func apiEndpoints(slice *discoveryv1.EndpointSlice) ([]string, bool) {
	if slice.Namespace != metav1.NamespaceDefault || slice.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
		return nil, false
	}
	var found []string
	for _, port := range slice.Ports {
		if port.Port == nil {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				found = append(found, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	return found, true
}

// addressOf returns the host and port of a URL of an API.
func addressOf(server string) (string, error) {
	to, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "443")), nil
}
