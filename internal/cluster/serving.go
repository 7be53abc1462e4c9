// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/machine"
)

// serving is the listener and the addresses of the API.
type serving struct {
	listener net.Listener
	names    pki.Names
	// host is the address for users, advertised the one for pods.
	host       string
	advertised net.IP
	port       int
}

// apiserverNames are the DNS names of the API server for pods.
var apiserverNames = []string{
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
}

// listen opens the API's port on the bind address and, if this machine is a node with Kindred's
// pod network, on the bridge, for pods.
func listen(ctx context.Context, config Config, node *machine.Machine) (serving, error) {
	first, err := listenFirst(ctx, config)
	if err != nil {
		return serving{}, err
	}
	s := serving{listener: first, port: first.Addr().(*net.TCPAddr).Port, advertised: config.BindAddress, host: config.BindAddress.String()}
	ips := []net.IP{config.BindAddress, net.IPv4(127, 0, 0, 1), firstServiceIP(config.ServiceCIDRs[0])}
	if config.BindAddress.IsUnspecified() {
		s.host = "127.0.0.1"
		s.advertised = machine.HostIP()
		ips = append(ips, s.advertised)
	}
	for _, address := range config.NodeIPs {
		ips = append(ips, net.IP(address.AsSlice()))
	}
	if config.reachedByNodeIP() {
		s.advertised = net.IP(config.NodeIPs[0].AsSlice())
	}
	if node != nil {
		bridge, err := s.listenForPods(ctx, config, node)
		if err != nil {
			return s, err
		}
		ips = append(ips, bridge...)
	}
	s.names = pki.Names{DNS: slices.Concat(apiserverNames, config.Names.DNS), IPs: append(ips, config.Names.IPs...)}
	if name, err := os.Hostname(); err == nil {
		s.names.DNS = append(s.names.DNS, name)
	}
	return s, nil
}

// reachedByNodeIP reports whether the API listens on the address of this machine as a node.
func (config *Config) reachedByNodeIP() bool {
	return len(config.NodeIPs) > 0 && !config.BindAddress.IsLoopback()
}

// listenForPods listens on the bridge of the node's pods, unless the API listens on all addresses, and returns the
// address; none if the pod network is not Kindred's.
func (s *serving) listenForPods(ctx context.Context, config Config, node *machine.Machine) ([]net.IP, error) {
	bridge, err := node.BridgeAddress(ctx)
	if err != nil || bridge == nil {
		return nil, err
	}
	if !config.reachedByNodeIP() {
		s.advertised = bridge
	}
	if config.BindAddress.IsUnspecified() {
		return []net.IP{bridge}, nil
	}
	second, err := listenOn(ctx, bridge, s.port)
	if err != nil {
		return nil, err
	}
	s.listener = joinListeners(s.listener, second)
	return []net.IP{bridge}, nil
}

// listenFirst opens the API's port. If any port will do, it prefers the last one, because
// containers that still run use it.
func listenFirst(ctx context.Context, config Config) (net.Listener, error) {
	if last := lastPort(config); config.Port == 0 && last != 0 {
		if listener, err := listenOn(ctx, config.BindAddress, last); err == nil {
			return listener, nil
		}
	}
	listener, err := listenOn(ctx, config.BindAddress, config.Port)
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%w; choose an address of this machine with --bind-address", err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w; choose a port from 1024 on with --secure-port, or 0 for any free one", err)
	case err != nil:
		return nil, fmt.Errorf("%w; choose another with --secure-port, or 0 for any free one", err)
	}
	return listener, nil
}

// lastPort returns the port of the last cluster in this directory; 0 if there was none.
func lastPort(config Config) int {
	last, found, err := config.Dir.ReadInstance()
	if err != nil || !found {
		return 0
	}
	server, err := url.Parse(last.Server)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(server.Port())
	return port
}

func listenOn(ctx context.Context, ip net.IP, port int) (net.Listener, error) {
	var config net.ListenConfig
	address := net.JoinHostPort(ip.String(), strconv.Itoa(port))
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return listener, nil
}

// forPods returns the address of the API for pods.
func (s serving) forPods() netip.AddrPort {
	address, ok := netip.AddrFromSlice(s.advertised)
	if !ok || address.IsLoopback() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(s.port))
}

func (s serving) close() {
	if s.listener != nil {
		_ = s.listener.Close()
	}
}

// firstServiceIP returns the address of the Service default/kubernetes.
func firstServiceIP(cidr netip.Prefix) net.IP { return net.IP(cidr.Addr().Next().AsSlice()) }

// joined accepts from several listeners.
type joined struct {
	net.Listener
	others   []net.Listener
	accepted chan accepted
	closed   chan struct{}
	once     sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

func joinListeners(first net.Listener, others ...net.Listener) net.Listener {
	j := &joined{Listener: first, others: others, accepted: make(chan accepted), closed: make(chan struct{})}
	for _, listener := range append([]net.Listener{first}, others...) {
		go j.acceptFrom(listener)
	}
	return j
}

func (j *joined) acceptFrom(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		select {
		case j.accepted <- accepted{conn, err}:
		case <-j.closed:
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			return
		}
	}
}

func (j *joined) Accept() (net.Conn, error) {
	select {
	case a := <-j.accepted:
		return a.conn, a.err
	case <-j.closed:
		return nil, net.ErrClosed
	}
}

func (j *joined) Close() error {
	var err error
	j.once.Do(func() {
		close(j.closed)
		err = j.Listener.Close()
		for _, other := range j.others {
			_ = other.Close()
		}
	})
	return err
}
