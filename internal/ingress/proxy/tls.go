// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// tlsConfig chooses a certificate by the name that the client wants to reach (SNI). Without a certificate for it,
// the handshake fails with the alert unrecognized_name.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate}
}

func (s *Server) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := hostname(hello.ServerName)
	l := s.table.Load().Listener(addressOf(hello.Conn.LocalAddr()), name)
	if l == nil {
		return nil, nil
	}
	found := l.CertificatesFor(name)
	for _, c := range found {
		if hello.SupportsCertificate(c.Certificate) == nil {
			return c.Certificate, nil
		}
	}
	if len(found) > 0 { // such as a certificate for another name: the client decides whether it trusts that
		return found[0].Certificate, nil
	}
	return nil, nil
}

// sorting is a listener that keeps connections for itself that a Passthrough listener serves, and passes on the
// others.
type sorting struct {
	net.Listener
	server   *Server
	accepted chan net.Conn
	done     chan struct{}
	close    sync.Once
	err      error
}

// helloTimeout is the time that a client has for the first message of the handshake.
const helloTimeout = 10 * time.Second

func (s *Server) newSorting(socket net.Listener) *sorting {
	return &sorting{Listener: socket, server: s, accepted: make(chan net.Conn), done: make(chan struct{})}
}

// Accept returns the next connection that TLS is terminated for.
func (l *sorting) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.done:
		return nil, l.err
	}
}

// run accepts connections until the socket is closed.
func (l *sorting) run() {
	for {
		c, err := l.Listener.Accept()
		var passing net.Error
		if errors.As(err, &passing) && passing.Timeout() {
			continue
		}
		if err != nil {
			l.close.Do(func() { l.err = err; close(l.done) })
			return
		}
		go l.sort(c)
	}
}

func (l *sorting) sort(c net.Conn) {
	at := addressOf(c.LocalAddr())
	if !l.server.table.Load().Passes(at.Port()) {
		l.pass(c)
		return
	}
	_ = c.SetReadDeadline(l.server.options.Clock.Now().Add(helloTimeout))
	name, read := serverName(c)
	_ = c.SetReadDeadline(time.Time{})
	c = &begun{Conn: c, reader: io.MultiReader(bytes.NewReader(read), c)}
	found := l.server.table.Load().Listener(at, name)
	switch {
	case found == nil: // closed without an alert, which would be that of a server: TLSRoutes demand it
		_ = c.Close()
	case found.Protocol == route.Passthrough:
		defer c.Close()
		l.server.splice(c, found.Find(route.Request{Host: name, Path: "/"}))
	default:
		l.pass(c)
	}
}

func (l *sorting) pass(c net.Conn) {
	select {
	case l.accepted <- c:
	case <-l.done:
		_ = c.Close()
	}
}

// begun is a connection whose beginning was read already.
type begun struct {
	net.Conn
	reader io.Reader
}

// CloseWrite ends the stream to the client.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Conn.Close()
}

func (b *begun) Read(into []byte) (int, error) { return b.reader.Read(into) }

// serverName reads the first message of a TLS handshake, and returns the name that the client wants to reach, and
// all that was read.
func serverName(c net.Conn) (string, []byte) {
	var read bytes.Buffer
	name := ""
	errEnough := errors.New("enough")
	// The handshake ends after the client's first message, and nothing is written.
	_ = tls.Server(listening{Conn: c, reader: io.TeeReader(c, &read)}, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hostname(hello.ServerName)
			return nil, errEnough
		},
	}).HandshakeContext(context.Background())
	return name, read.Bytes()
}

// listening is a connection that only reads.
type listening struct {
	net.Conn
	reader io.Reader
}

func (l listening) Read(into []byte) (int, error)           { return l.reader.Read(into) }
func (listening) Write(content []byte) (int, error)         { return 0, io.ErrClosedPipe }
func (listening) Close() error                              { return nil }
func (listening) SetWriteDeadline(deadline time.Time) error { return nil }

// splice connects a client with an endpoint of a rule, until one of them closes.
func (s *Server) splice(client net.Conn, rule *route.Rule) {
	if rule == nil {
		return
	}
	backend := choose(rule.Action.Backends)
	if backend == nil || backend.Refusal != nil {
		return
	}
	server := s.dial(s.options.Endpoints(backend.Service, backend.Port))
	if server == nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(s.lifetime, func() { _ = client.Close(); _ = server.Close() })()
	var copying sync.WaitGroup
	copying.Go(func() { relay(server, client) })
	relay(client, server)
	copying.Wait()
}

// relay copies until the end, and passes on the end.
func relay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
	_ = from.Close()
}

// dial connects to one of the first endpoints of a random order; nil if there is no connection.
func (s *Server) dial(endpoints []netip.AddrPort) net.Conn {
	for _, i := range rand.Perm(len(endpoints))[:min(maxDials, len(endpoints))] {
		c, err := net.DialTimeout("tcp", endpoints[i].String(), dialTimeout)
		if err == nil {
			return c
		}
	}
	return nil
}
