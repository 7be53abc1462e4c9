// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxy is the reverse proxy of Ingresses and Gateways: it listens on the ports of a route.Table, and
// forwards requests to the endpoints of Services. Lookups use the latest table, so that a change applies to the next
// request on each connection, and a certificate to the next handshake.
package proxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// Options configure a Server.
type Options struct {
	// Address is the address of all listeners; the zero Addr is all addresses of the machine.
	Address netip.Addr
	// Endpoints returns the addresses that serve a port of a Service, named by namespace/name. The caller does not
	// change them.
	Endpoints func(service string, port int32) []netip.AddrPort
	Clock     clock.WithTicker
}

// Server listens and forwards.
type Server struct {
	options    Options
	table      atomic.Pointer[route.Table]
	forwarding *httputil.ReverseProxy
	transports transports
	// mirroring limits the mirrored requests that are under way.
	mirroring chan struct{}
	// lifetime ends with Close; then connections end that are passed through.
	lifetime context.Context
	end      context.CancelFunc

	mutex sync.Mutex
	// open has the ports that are listened on.
	open map[uint16]*port
}

// maxMirrored is how many mirrored requests may be under way. Further ones are not sent.
const maxMirrored = 100

// New returns a server that listens on nothing yet.
func New(o Options) *Server {
	s := &Server{options: o, open: map[uint16]*port{}, mirroring: make(chan struct{}, maxMirrored), transports: newTransports(o)}
	s.lifetime, s.end = context.WithCancel(context.Background())
	s.table.Store(route.New(nil))
	s.forwarding = s.newForwarding()
	return s
}

// port is a socket with its server.
type port struct {
	socket  net.Listener
	server  *http.Server
	encrypt bool
}

// Limits of a client's connection, as protection against clients that keep connections without using them.
const (
	headerTimeout = 30 * time.Second
	idleTimeout   = 3 * time.Minute
	// stopTimeout is the time that requests have to end when the process stops.
	stopTimeout = 300 * time.Millisecond
	// drainTimeout is the time that requests have to end when a port is in the table no longer.
	drainTimeout = time.Minute
)

// Serve replaces the table. It opens the ports that are new, and closes those that are in it no longer, whose
// requests may end. It returns an error for each port that it cannot listen on; the next call tries again.
func (s *Server) Serve(ctx context.Context, table *route.Table) map[uint16]error {
	s.table.Store(table)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	wanted := table.Ports()
	for number, p := range s.open {
		if encrypt, ok := wanted[number]; !ok || encrypt != p.encrypt {
			delete(s.open, number)
			p.stop()
		}
	}
	failed := map[uint16]error{}
	for number, encrypt := range wanted {
		if s.open[number] != nil {
			continue
		}
		p, err := s.listen(ctx, number, encrypt)
		if err != nil {
			failed[number] = err
			continue
		}
		s.open[number] = p
	}
	return failed
}

// Close closes all ports. Requests have a short time to end.
func (s *Server) Close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var stopping sync.WaitGroup
	for _, p := range s.open {
		stopping.Go(func() {
			_ = p.server.Shutdown(ctx)
			_ = p.server.Close()
		})
	}
	stopping.Wait()
	s.open = map[uint16]*port{}
	s.end()
	s.transports.close()
}

// stop closes the socket now, and its connections when their requests have ended.
func (p *port) stop() {
	_ = p.socket.Close() // now, so that the port can be opened again
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		_ = p.server.Shutdown(ctx)
		_ = p.server.Close()
	}()
}

func (s *Server) listen(ctx context.Context, number uint16, encrypt bool) (*port, error) {
	host := ""
	if s.options.Address.IsValid() {
		host = s.options.Address.String()
	}
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, portName(number)))
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	p := &port{socket: socket, encrypt: encrypt, server: &http.Server{
		Handler: s, Protocols: protocols, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: silent, TLSConfig: s.tlsConfig(),
	}}
	if !encrypt {
		go func() { _ = p.server.Serve(socket) }()
		return p, nil
	}
	sorting := s.newSorting(socket)
	go sorting.run()
	go func() { _ = p.server.ServeTLS(sorting, "", "") }()
	return p, nil
}
