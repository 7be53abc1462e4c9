// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

// Port is the usual port of DNS.
const Port = 53

// Sockets are the UDP and the TCP socket of a server, on the same port.
type Sockets struct {
	UDP net.PacketConn
	TCP net.Listener
}

// Listen opens the sockets on an address: on its port, or on a free one if the port is 0 or another program has it.
func Listen(ctx context.Context, at netip.AddrPort) (Sockets, error) {
	const attempts = 10 // a free UDP port may not be a free TCP port
	address, port := at.Addr(), int(at.Port())
	for attempt := 0; ; attempt++ {
		sockets, err := listenOn(ctx, address, port)
		if err == nil || attempt == attempts || !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			return sockets, err
		}
		port = 0
	}
}

func listenOn(ctx context.Context, address netip.Addr, port int) (Sockets, error) {
	var config net.ListenConfig
	at := net.JoinHostPort(address.String(), strconv.Itoa(port))
	udp, err := config.ListenPacket(ctx, "udp", at)
	if err != nil {
		return Sockets{}, fmt.Errorf("listen for DNS on %s: %w", at, err)
	}
	tcp, err := config.Listen(ctx, "tcp", udp.LocalAddr().String())
	if err != nil {
		_ = udp.Close()
		return Sockets{}, fmt.Errorf("listen for DNS on %s: %w", udp.LocalAddr(), err)
	}
	return Sockets{udp, tcp}, nil
}

// Close closes the sockets of a server that does not run.
func (s Sockets) Close() { _, _ = s.UDP.Close(), s.TCP.Close() }

// Address returns the address and the port.
func (s Sockets) Address() netip.AddrPort {
	return s.UDP.LocalAddr().(*net.UDPAddr).AddrPort()
}

// shutdownTimeout is the limit for requests in progress when the server stops.
const shutdownTimeout = 200 * time.Millisecond

// Serve answers requests until ctx is done, and closes the sockets.
func (s *Server) Serve(ctx context.Context, sockets Sockets) error {
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, request *dns.Msg) { s.respond(ctx, w, request) })
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range []*dns.Server{
		{PacketConn: sockets.UDP, Handler: handler, UDPSize: udpSize},
		{Listener: sockets.TCP, Handler: handler},
	} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		group.Go(func() error { return server.ActivateAndServe() })
		group.Go(func() error {
			<-started
			<-ctx.Done()
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer cancel()
			_ = server.ShutdownContext(stop) // what still runs is abandoned
			return nil
		})
	}
	return group.Wait()
}
